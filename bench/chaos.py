#!/usr/bin/env python3
"""Trains under faults: is the result that of a run that nothing disturbed?

    bench/chaos.py [--bin DIR] [--runs N] [--faults N] [--kinds KIND,KIND] [--seed S]

Each run trains a small network (some 4,000 parameters, 1,650 steps of a millisecond or so) on one of the
configs of resume_check.py: every optimizer, average, clipping, SKIP_STEP, 16 bits on the wire, each over a
random transport. A schedule that follows from the run's seed alone says what happens at which step:

    server    SIGKILL, SIGSEGV or SIGABRT to the server: the launcher starts another one
    hang      SIGSTOP to the server, for good: it is replaced when deadlines.silence_s is over
    launcher  SIGKILL to the launcher: nothing may be left, and --resume goes on, with other workers
    stop      SIGSTOP to the server or a worker, and SIGCONT within 1.5 s: nothing happens
    worker    SIGKILL to a worker: it is replaced (cluster.on_lost_worker)

At the end the exit code, the hash of the weights, every line of metrics.jsonl but for times, and so all
evaluations, must be those of the undisturbed run; TensorBoard's files must have each step once; no process, no
socket and no shared memory may be left, and the launcher's descriptors must not grow from fault to fault.
A run that fails prints its seed: `--seed THAT --runs 1`, with the same --faults and --kinds, repeats it.
"""
import argparse
import collections
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from job_processes import descriptors_of, member, processes_of, states_of
from resume_check import NETWORK, PARTS, VARIANTS, metrics
from tensorboard_steps import Twice, shown

KINDS = ("server", "hang", "launcher", "stop", "worker")
STEPS = 1650  # 150 epochs of 11
SILENCE_S = 2
PATIENCE_S = 60  # for whatever has to follow a fault
Fault = collections.namedtuple("Fault", "kind step delay detail")


class Lost(Exception):
    """Something is not as it should be."""


def schedule(seed, faults, kinds):
    """All that follows from the seed: which config, transport, and what happens when."""
    rng = random.Random(seed)
    variant = rng.randrange(len(VARIANTS))
    rounded = "wire" in VARIANTS[variant].get("cluster", "")
    transport = rng.choice(["AUTO", "TCP"] if rounded else ["LOCAL", "IPC", "TCP"])
    plan = [Fault(rng.choice(kinds), step, rng.uniform(0, 0.02), rng.random())
            for step in sorted(rng.randrange(STEPS * 19 // 20) for _ in range(faults))]
    return variant, transport, plan


def eventually(condition, seconds, what):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise Lost(f"not within {seconds} s: {what}")
        time.sleep(0.002)


class Run:
    """One training, from its start to its end or to the first thing that is wrong."""

    def __init__(self, chaos, seed):
        self.chaos, self.seed = chaos, seed
        self.variant, self.transport, self.plan = schedule(seed, chaos.faults, chaos.kinds)
        self.folder = f"{chaos.work}/seed-{seed}"
        self.log = self.folder + ".log"
        self.launcher = None
        self.descriptors = []
        self.going_on = 0  # times that the launcher has said so

    def start(self, arguments):
        with open(self.log, "a") as out:
            self.launcher = subprocess.Popen(
                [f"{self.chaos.bin}/muster", "launch", *arguments, "--set",
                 f"cluster.transport={self.transport}"], stdout=out, stderr=out,
                stdin=subprocess.DEVNULL)

    def said(self, text):
        with open(self.log) as file:
            return file.read().count(text)

    def step(self):
        """How far the run is, by its last whole line of metrics."""
        try:
            with open(f"{self.folder}/metrics.jsonl", "rb") as file:
                file.seek(max(0, os.path.getsize(file.name) - 4096))
                found = re.findall(rb'"step":([0-9]+)', file.read())
            return int(found[-1]) if found else 0
        except FileNotFoundError:
            return 0

    def over(self):
        return self.launcher.poll() is not None

    def reach(self, step):
        eventually(lambda: self.over() or self.step() >= step, PATIENCE_S, f"step {step}")
        return not self.over()

    def replaced(self):
        """The launcher has put another server in the place of the one that was lost."""
        begin = time.monotonic()
        self.going_on += 1
        eventually(lambda: self.over() or self.said("Going on from step") >= self.going_on,
                   PATIENCE_S, "another server goes on")
        self.chaos.recovery.append(time.monotonic() - begin)
        open_now = descriptors_of(self.launcher.pid)
        if open_now:
            self.descriptors.append(open_now)

    def kept(self):
        try:
            names = os.listdir(f"{self.folder}/checkpoints")
        except FileNotFoundError:
            return False
        return any(name.startswith("step-") and "." not in name for name in names)

    def do(self, fault):
        if not self.reach(fault.step):
            return False
        # Without one a lost server ends the run, as it should.
        eventually(lambda: self.over() or self.kept(), PATIENCE_S, "the first checkpoint")
        time.sleep(fault.delay)
        servers, workers = member(self.folder, "muster-server"), None
        if self.over() or not servers:
            return False
        try:
            if fault.kind in ("server", "hang"):
                signals = [signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT]
                number = signal.SIGSTOP if fault.kind == "hang" else signals[int(3 * fault.detail)]
                os.kill(servers[0], number)
                self.replaced()
            elif fault.kind == "launcher":
                self.kill_launcher(fault)
            else:
                workers = member(self.folder, "muster-worker")
                victims = workers if fault.kind == "worker" else servers + workers
                self.hurt(victims[int(len(victims) * fault.detail)], fault)
        except (ProcessLookupError, IndexError):
            return False  # it has just ended by itself
        return True

    def kill_launcher(self, fault):
        self.launcher.kill()
        self.launcher.wait()
        eventually(lambda: not processes_of(self.folder), 10, "no process outlives the launcher")
        self.going_on = self.said("Going on from step")
        self.descriptors = []
        self.start(["--resume", self.folder, "--workers", str(1 + int(4 * fault.detail))])

    def hurt(self, pid, fault):
        if fault.kind == "worker":
            os.kill(pid, signal.SIGKILL)
            return
        os.kill(pid, signal.SIGSTOP)
        time.sleep(0.2 + 1.3 * fault.detail)
        os.kill(pid, signal.SIGCONT)

    def train(self):
        done = collections.Counter()
        self.start([self.chaos.config(self.variant), "--run-dir", self.folder])
        for fault in self.plan:
            done[fault.kind] += self.do(fault)
        try:
            code = self.launcher.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise Lost(f"the run does not end within {PATIENCE_S} s")
        if code != 0:
            raise Lost(f"exit code {code}")
        return done

    def check(self):
        (expected, board), got = self.chaos.undisturbed(self.variant), metrics(self.folder)
        if got != expected:
            at = next((i for i, (a, b) in enumerate(zip(expected, got)) if a != b),
                      min(len(expected), len(got)))
            raise Lost(f"{len(got)} lines of metrics, expected {len(expected)}; line {at} is the first "
                       f"that differs: {got[at:at + 1]}, expected {expected[at:at + 1]}")
        try:
            have = shown(self.folder)
        except Twice as twice:
            raise Lost(f"TensorBoard: {twice}") from twice
        for tag, steps in have.items():
            if steps != board.get(tag):
                lacks = sorted(set(board.get(tag, [])) - set(steps))
                raise Lost(f"TensorBoard has other steps of {tag}: it lacks {lacks[:5]}")
        left = processes_of(self.folder)
        if left:
            raise Lost(f"processes are left: {left}")
        with open(f"{self.folder}/server.log") as file:
            names = set(re.findall(r"(?:ipc|local)://(@[^ ;]+)", file.read()))
        with open("/proc/net/unix") as file:
            sockets = {line.split()[-1] for line in file}
        if names & sockets:
            raise Lost(f"sockets are left: {names & sockets}")
        shared = [name for name in os.listdir("/dev/shm") if "muster" in name]
        if shared:
            raise Lost(f"shared memory is left: {shared}")
        if self.descriptors and max(self.descriptors) > self.descriptors[0]:
            raise Lost(f"the launcher's descriptors grow with each fault: {self.descriptors}")

    def end(self):
        for pid in processes_of(self.folder):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        if self.launcher:
            self.launcher.kill()
            self.launcher.wait()


class Chaos:
    def __init__(self, arguments, work):
        self.bin, self.work = arguments.bin, work
        self.faults, self.kinds = arguments.faults, arguments.kinds
        self.expected, self.recovery = {}, []

    def config(self, variant):
        path = f"{self.work}/variant-{variant}.txtpb"
        if not os.path.exists(path):
            settings = {**dict.fromkeys(PARTS, ""), "checkpoint": "every_steps: 40", **VARIANTS[variant]}
            settings["run"] += " max_restarts: 100000"
            text = (NETWORK % settings).replace("epochs: 6 ", "epochs: 150 ")
            with open(path, "w") as file:
                file.write(text.replace("start_s: 120", f"start_s: 60 silence_s: {SILENCE_S}"))
        return path

    def undisturbed(self, variant):
        if variant not in self.expected:
            folder = f"{self.work}/undisturbed-{variant}"
            with open(folder + ".log", "w") as out:
                code = subprocess.call([f"{self.bin}/muster", "launch", self.config(variant), "--run-dir",
                                        folder], stdout=out, stderr=out, timeout=300)
            if code != 0:
                sys.exit(f"the undisturbed run of variant {variant} failed: {folder}.log")
            self.expected[variant] = metrics(folder), shown(folder)
            shutil.rmtree(folder)
        return self.expected[variant]


def kinds_of(text):
    kinds = text.split(",")
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0]}: expected some of {', '.join(KINDS)}")
    return kinds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    default = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../build/release/bin")
    parser.add_argument("--bin", default=os.path.normpath(default), help="where muster is")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--faults", type=int, default=5, help="in each run, at most")
    parser.add_argument("--kinds", type=kinds_of, default=list(KINDS),
                        help="default: " + ",".join(KINDS))
    parser.add_argument("--seed", type=int, default=1, help="of the first run; the next has the next")
    parser.add_argument("--keep", action="store_true", help="keep the runs' directories")
    arguments = parser.parse_args()
    work = tempfile.mkdtemp(prefix="muster-chaos-")
    chaos = Chaos(arguments, work)
    total, failures = collections.Counter(), []
    for seed in range(arguments.seed, arguments.seed + arguments.runs):
        run = Run(chaos, seed)
        try:
            total += run.train()
            run.check()
            if not arguments.keep:
                shutil.rmtree(run.folder)
        except Lost as lost:
            failures.append(seed)
            print(f"seed {seed}: variant {run.variant} over {run.transport}: {lost}; {run.log}\n"
                  f"    {[(f.kind, f.step) for f in run.plan]}\n    {states_of(processes_of(run.folder))}",
                  flush=True)
        finally:
            run.end()
    print(f"{arguments.runs - len(failures)} of {arguments.runs} runs end as if nothing had been, after "
          f"{sum(total.values())} faults ({', '.join(f'{n} {kind}' for kind, n in total.items())})")
    if chaos.recovery:
        print(f"from the loss of a server to the next one's first step: median "
              f"{statistics.median(chaos.recovery):.2f} s, at most {max(chaos.recovery):.2f} s")
    if not arguments.keep and not failures:
        shutil.rmtree(work)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
