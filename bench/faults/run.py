"""One training, from its start to its end or to the first thing that is not as it should be."""
import collections
import json
import os
import re
import signal
import subprocess
import time

from faults.diagnosis import diagnose
from faults.preloaded import Preloaded
from faults.schedule import schedule
from faults.tensorboard_steps import Twice, shown
from faults.variants import SILENCE_S, STEPS, VARIANTS, metrics
from job_processes import descriptors_of, member, processes_of

START_S = 30     # for the first sign of life
PATIENCE_S = 60  # for whatever has to follow a fault
OF_OTHERS = ("muster-model-", "muster-fuzz-")  # tests and fuzzers that run beside have their files there


class Lost(Exception):
    """Something is not as it should be."""


class Stuck(Lost):
    """… in that nothing happens."""


def eventually(condition, seconds, what):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise Stuck(f"not within {seconds} s: {what}")
        time.sleep(0.002)


class Run:
    """What launched runs and those by hand have in common. `chaos`: what all runs share."""

    def __init__(self, chaos, seed):
        self.chaos, self.seed = chaos, seed
        self.plan = schedule(seed, chaos.wanted, STEPS, VARIANTS)
        self.folder = f"{chaos.work}/seed-{seed}"
        self.log = self.folder + ".log"
        self.first = None  # the process that the user would have started
        self.done = collections.Counter()
        self.descriptors = []
        self.preloaded = None
        if chaos.preload:
            self.preloaded = Preloaded(chaos.preload, f"{self.folder}.faults", self.folder)

    def spawn(self, words, log):
        environment = {**os.environ, **(self.preloaded.environment if self.preloaded else {})}
        with open(log, "a") as out:
            return subprocess.Popen(words, stdout=out, stderr=out, stdin=subprocess.DEVNULL, env=environment)

    def shows_life(self, log, size):
        eventually(lambda: self.over() or os.path.getsize(log) > size, START_S,
                   f"a word of the process that was started; {log}")

    def said(self, text):
        with open(self.log) as file:
            return file.read().count(text)

    def step(self):
        """How far the run is, by its last whole line of metrics, and by its status, which comes more
        rarely, but also where the disk takes no metrics."""
        found = []
        try:
            with open(f"{self.folder}/metrics.jsonl", "rb") as file:
                file.seek(max(0, os.path.getsize(file.name) - 4096))
                found = re.findall(rb'"step":([0-9]+)', file.read())
            with open(f"{self.folder}/status.json") as file:
                found = [max(int(found[-1]) if found else 0, int(json.load(file).get("step", 0)))]
        except (FileNotFoundError, ValueError):
            pass
        return int(found[-1]) if found else 0

    def over(self):
        return self.first.poll() is not None

    def reach(self, step):
        """However slow the machine is, as long as the run gets on."""
        while not self.over() and self.step() < step:
            before = self.step()
            eventually(lambda: self.over() or self.step() != before, PATIENCE_S, f"a step after {before}")
        return not self.over()

    def await_end(self):
        while not self.over():
            before = self.step()
            eventually(lambda: self.over() or self.step() != before, PATIENCE_S, f"a step after {before}, or the end")

    def kept(self):
        try:
            names = os.listdir(f"{self.folder}/checkpoints")
        except FileNotFoundError:
            return False
        return any(name.startswith("step-") and "." not in name for name in names)

    def member(self, program):
        return member(self.folder, program)

    def do(self, fault):
        """Whether it happened: a run that has just ended has no more faults."""
        if not self.reach(fault.step):
            return False
        # Without one a lost server ends the run, as it should.
        eventually(lambda: self.over() or self.kept(), PATIENCE_S, "the first checkpoint")
        # A server that is stopped while it starts has deadlines.start_s for it, and no other one after it.
        eventually(lambda: self.over() or self.member("muster-worker"), PATIENCE_S, "workers")
        time.sleep(fault.delay)
        if self.over() or not self.member("muster-server"):
            return False
        try:
            return getattr(self, "do_" + fault.kind)(fault.random) is not False
        except (ProcessLookupError, IndexError):
            return False  # it has just ended by itself

    def victim(self, program, rng):
        return rng.choice(self.member(program) or [0]) or None

    def kill(self, program, number, rng):
        pid = self.victim(program, rng)
        if pid is None:
            raise ProcessLookupError
        os.kill(pid, number)

    def do_worker(self, rng):
        self.kill("muster-worker", signal.SIGKILL, rng)

    def do_stop(self, rng):
        """A server only so long that nobody gives it up; a worker may be late, fenced or replaced."""
        program = rng.choice(["muster-server", "muster-worker", "muster-worker"])
        pid = self.victim(program, rng)
        if pid is None:
            return False
        seconds = rng.uniform(0.2, 1.5 if program == "muster-server" else 1.5 * SILENCE_S)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(self.chaos.shortened(seconds))
        os.kill(pid, signal.SIGCONT)

    def do_slow(self, rng):
        """A worker gets 20 % of a core for a while: it runs 10 ms of 50."""
        pid = self.victim("muster-worker", rng)
        if pid is None:
            return False
        end = time.monotonic() + self.chaos.shortened(rng.uniform(0.5, 1.5))
        while time.monotonic() < end:
            os.kill(pid, signal.SIGSTOP)
            time.sleep(0.04)
            os.kill(pid, signal.SIGCONT)
            time.sleep(0.01)

    def train(self):
        self.begin()
        for fault in self.plan.faults:
            self.done[fault.kind] += self.do(fault)
        self.finish()

    def check(self):
        (expected, board), got = self.chaos.undisturbed(self.plan.variant), metrics(self.folder)
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
            if steps != board.get(tag) and not self.board_may_lack():
                lacks = sorted(set(board.get(tag, [])) - set(steps))
                raise Lost(f"TensorBoard has other steps of {tag}: it lacks {lacks[:5]}")
        left = processes_of(self.folder)
        if left:
            raise Lost(f"processes are left: {left}")
        with open(f"{self.folder}/server.log") as file:
            names = set(re.findall(r"(?:ipc|local)://(@[^ ;]+)", file.read()))
        sockets = {line.split()[-1] for line in self.unix_sockets().splitlines()}
        if names & sockets:
            raise Lost(f"sockets are left: {names & sockets}")
        shared = [name for name in os.listdir("/dev/shm")
                  if "muster" in name and not name.startswith(OF_OTHERS)]
        if shared:
            raise Lost(f"shared memory is left: {shared}")
        if self.descriptors and max(self.descriptors) > self.descriptors[0]:
            raise Lost(f"the launcher's descriptors grow with each fault: {self.descriptors}")

    def unix_sockets(self):
        with open("/proc/net/unix") as file:
            return file.read()

    def board_may_lack(self):
        """What TensorBoard's files could not take of what a full disk refused is not said again."""
        return self.preloaded is not None and self.preloaded.failed() > 0

    def note_descriptors(self):
        open_now = descriptors_of(self.first.pid)
        if open_now:
            self.descriptors.append(open_now)

    def diagnosis(self):
        return diagnose(processes_of(self.folder))

    def end(self):
        for pid in processes_of(self.folder):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        if self.first:
            self.first.kill()
            self.first.wait()
