#!/usr/bin/env python3
"""Trains under faults: is the result that of a run that nothing disturbed?

    bench/chaos.py [--bin DIR] [--runs N] [--faults N | --each] [--kinds KIND,KIND] [--seed S]

Each run trains a small network (some 4,000 parameters, 1,650 steps of a millisecond or so) on one of the
configs of faults/variants.py: every optimizer, average, clipping, SKIP_STEP, 16 bits on the wire. A schedule that
follows from the run's seed alone says what happens at which step. Runs with odd seeds are those of `muster launch`,
over a random transport:

    server     SIGKILL, SIGSEGV or SIGABRT to the server: the launcher starts another one
    hang       SIGSTOP to the server, for good: it is replaced when deadlines.silence_s (2 s here) is over
    launcher   SIGKILL to the launcher: nothing may be left, and --resume goes on, with other workers
    stop       SIGSTOP to the server (up to 1.5 s) or a worker (up to 3 s), and SIGCONT
    worker     SIGKILL to a worker: it is replaced (cluster.on_lost_worker)
    workers    SIGKILL to all of them
    slow       a worker gets 20 % of a core for a while
    disk       ENOSPC or EIO: some calls in a row of the server or the launcher that open, write, sync or rename
               files of the run fail; a run that ends of it must say so, and goes on with --resume
    damage     the newest checkpoint is damaged before the launcher, or --resume, reads it: it is named
    clock      the wall clock jumps, up to an hour from the right time

Those with even seeds are started by hand, with `muster server --resume auto` and `muster worker`, which are started
again as a service manager would; over TCP, encrypted or not, between network namespaces where that is allowed:

    server, hang, launcher, stop, worker, slow  as above
    twice      a rank is started a second time: it asks for the seat while the next faults happen, gets it only if
               the first worker is lost, and is refused, or told of the run's end
    resize     from 2 workers to 4, to 1, to 3: workers join, and leave at SIGTERM
    partition  a link, or all, lets nothing through, in one direction or both, for up to 1.5 x silence_s
    loss       a link loses up to 30 % of its packets for a while
    delay      … holds each back for up to 0.1 s

At the end the exit code, the hash of the weights, every line of metrics.jsonl but for times, and so all
evaluations, must be those of the undisturbed run; TensorBoard's files must have each step once; no process, no
socket and no shared memory may be left, and the launcher's descriptors must not grow from fault to fault.
A run that fails prints its seed: `--seed THAT --runs 1`, with the same --faults and --kinds, repeats it.
"""
import argparse
import collections
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile

from faults.by_hand import HandRun
from faults.damage import checkpoints_of
from faults.launched import LaunchedRun
from faults.network import why_not
from faults.run import Lost, Stuck
from faults.schedule import KINDS, NETWORK, schedule
from faults.tensorboard_steps import shown
from faults.variants import STEPS, VARIANTS, config_of, metrics

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")  # measured on the CPU: a job would take idle GPUs


class Chaos:
    """What all runs share."""

    def __init__(self, arguments, work, has_network):
        self.bin, self.work, self.wanted, self.has_network = arguments.bin, work, arguments, has_network
        self.preload = arguments.preload
        self.expected, self.recovery = {}, []

    def shortened(self, seconds):
        """How long something lasts that may be short."""
        return seconds / 3 if self.wanted.each else seconds

    def config(self, variant):
        path = f"{self.work}/variant-{variant}.txtpb"
        if not os.path.exists(path):
            with open(path, "w") as file:
                file.write(config_of(variant))
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
            shutil.copytree(f"{folder}/checkpoints/{checkpoints_of(folder)[-1]}",
                            f"{self.work}/foreign-{variant}")
            shutil.rmtree(folder)
        return self.expected[variant]

    def foreign(self, variant):
        """A checkpoint of another run with the same config."""
        self.undisturbed(variant)
        return f"{self.work}/foreign-{variant}"


def kinds_of(text):
    kinds = text.split(",")
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0]}: expected some of {', '.join(KINDS)}")
    return kinds


def arguments_of():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    default = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../build/release/bin")
    parser.add_argument("--bin", default=os.path.normpath(default), help="where muster is")
    parser.add_argument("--preload", metavar="FILE", help="libfaults_preloaded.so, if it is not beside the programs")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--faults", type=int, default=5, help="in each run, at most")
    parser.add_argument("--each", action="store_true", help="one of each kind, shortened, in each run")
    parser.add_argument("--kinds", type=kinds_of, default=list(KINDS), help="default: " + ",".join(KINDS))
    parser.add_argument("--seed", type=int, default=1, help="of the first run; the next has the next")
    parser.add_argument("--keep", action="store_true", help="keep the runs' directories")
    return parser.parse_args()


def leave_out(arguments, kinds, why):
    """Not in silence."""
    lacking = [kind for kind in arguments.kinds if kind in kinds]
    if lacking:
        arguments.kinds = [kind for kind in arguments.kinds if kind not in lacking]
        print(f"{len(lacking)} kinds are left out ({', '.join(lacking)}): {why}", flush=True)
    if not arguments.kinds:
        sys.exit("no kind is left")


def one(chaos, seed, total):
    """Whether the run ended as it should."""
    plan = schedule(seed, chaos.wanted, STEPS, VARIANTS)
    run = (HandRun if plan.by_hand else LaunchedRun)(chaos, seed)
    try:
        run.train()
        run.check()
        if not chaos.wanted.keep:
            shutil.rmtree(run.folder)
        return True
    except Lost as lost:
        how = "by hand" if plan.by_hand else f"over {plan.transport}"
        print(f"seed {seed}: variant {plan.variant} {how}: {lost}; {run.log}\n"
              f"    {[(f.kind, f.step) for f in plan.faults]}", flush=True)
        if isinstance(lost, Stuck):
            print(run.diagnosis(), flush=True)
        return False
    finally:
        run.end()
        total.update(run.done)


def main():
    arguments = arguments_of()
    if arguments.preload is None:
        arguments.preload = f"{arguments.bin}/libfaults_preloaded.so"
    if not os.path.exists(arguments.preload):
        leave_out(arguments, ("disk", "clock"), f"{arguments.preload} is not there")
        arguments.preload = None
    why = why_not()
    if why:
        leave_out(arguments, NETWORK, f"no network namespaces with TUN devices: {why}")
    work = tempfile.mkdtemp(prefix="muster-chaos-")
    chaos, total = Chaos(arguments, work, not why), collections.Counter()
    seeds = range(arguments.seed, arguments.seed + arguments.runs)
    runs, failures = 0, []
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        for seed in seeds:
            if not one(chaos, seed, total):
                failures.append(seed)
            runs += 1
    except KeyboardInterrupt:
        print(f"stopped in seed {seed}")
    # What was done about a fault is not one.
    faults = {kind: total[kind] for kind in KINDS if total[kind]}
    print(f"{runs - len(failures)} of {runs} runs end as if nothing had been, after "
          f"{sum(faults.values())} faults ({', '.join(f'{n} {kind}' for kind, n in faults.items())})")
    besides = [f"{n} {what}" for what, n in total.items() if what not in KINDS]
    if besides:
        print("    of these: " + ", ".join(besides))
    if chaos.recovery:
        print(f"from the loss of a server to the next one's first step: median "
              f"{statistics.median(chaos.recovery):.2f} s, at most {max(chaos.recovery):.2f} s")
    if failures:
        print(f"failed seeds: {failures}")
    elif not arguments.keep:
        shutil.rmtree(work)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
