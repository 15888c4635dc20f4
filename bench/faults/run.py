"""One training run, up to its end or the first error."""
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

START_S = 30  # time until the first output
PATIENCE_S = 60  # time for the reaction to a fault
OF_OTHERS = ("muster-model-", "muster-fuzz-")  # files of tests and fuzzers that may run at the same time


class Lost(Exception):
    """The run gave a wrong result."""


class Stuck(Lost):
    """The run makes no progress."""


def eventually(condition, seconds, what):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise Stuck(f"missing after {seconds} s: {what}")
        time.sleep(0.002)


class Run:
    """The common base of launched runs and runs started by hand. `chaos` is the state shared by all runs."""

    def __init__(self, chaos, seed):
        self.chaos, self.seed = chaos, seed
        self.plan = schedule(seed, chaos.wanted, STEPS, VARIANTS)
        self.folder = f"{chaos.work}/seed-{seed}"
        self.log = self.folder + ".log"
        self.first = None  # the process that a user would have started
        self.done = collections.Counter()
        self.descriptors = []
        self.preloaded = None
        self.seen, self.next_look = 0, 0.0  # the step of the status, and when to look again
        if chaos.preload:
            self.preloaded = Preloaded(chaos.preload, f"{self.folder}.faults", self.folder)

    def spawn(self, words, log):
        environment = {**os.environ, **(self.preloaded.environment if self.preloaded else {})}
        with open(log, "a") as out:
            return subprocess.Popen(words, stdout=out, stderr=out, stdin=subprocess.DEVNULL, env=environment)

    def shows_life(self, log, size):
        eventually(lambda: self.over() or os.path.getsize(log) > size, START_S,
                   f"output of the started process; see {log}")

    def said(self, text):
        with open(self.log) as file:
            return file.read().count(text)

    def step(self):
        """Returns the current step, from the last whole line of metrics and from the status. The status is written
        less often, but even when the disk accepts no metrics."""
        found = []
        if time.monotonic() >= self.next_look:
            self.next_look = time.monotonic() + 1
            status = subprocess.run([f"{self.chaos.bin}/muster", "top", "--json", self.folder], capture_output=True,
                                    timeout=START_S)
            if status.returncode == 0:
                self.seen = int(json.loads(status.stdout)["progress"]["at"].get("step", 0))
        try:
            with open(f"{self.folder}/metrics.jsonl", "rb") as file:
                file.seek(max(0, os.path.getsize(file.name) - 4096))
                found = re.findall(rb'"step":([0-9]+)', file.read())
        except FileNotFoundError:
            pass
        return max(self.seen, int(found[-1]) if found else 0)

    def over(self):
        return self.first.poll() is not None

    def reach(self, step):
        """Waits for a step, as long as the run makes any progress. Returns False if the run ends first."""
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
        """Causes a fault. Returns whether it happened; it does not if the run has just ended."""
        if not self.reach(fault.step):
            return False
        # Without a checkpoint, losing the server correctly ends the run.
        eventually(lambda: self.over() or self.kept(), PATIENCE_S, "the first checkpoint")
        # A server that is stopped during its start is replaced after deadlines.start_s, but only
        # once.
        eventually(lambda: self.over() or self.member("muster-worker"), PATIENCE_S, "workers")
        time.sleep(fault.delay)
        if self.over() or not self.member("muster-server"):
            return False
        try:
            return getattr(self, "do_" + fault.kind)(fault.random) is not False
        except (ProcessLookupError, IndexError):
            return False  # the process has just ended by itself

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
        """Stops the server, too briefly for it to be given up, or a worker, which may become slow, be reset or be
        replaced."""
        program = rng.choice(["muster-server", "muster-worker", "muster-worker"])
        pid = self.victim(program, rng)
        if pid is None:
            return False
        seconds = rng.uniform(0.2, 1.5 if program == "muster-server" else 1.5 * SILENCE_S)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(self.chaos.shortened(seconds))
        os.kill(pid, signal.SIGCONT)

    def do_slow(self, rng):
        """Limits a worker to 20 % of a core for a while: it runs 10 of every 50 ms."""
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
                raise Lost(f"TensorBoard has wrong steps of {tag}; missing: {lacks[:5]}")
        left = processes_of(self.folder)
        if left:
            raise Lost(f"processes remain: {left}")
        with open(f"{self.folder}/server.log") as file:
            names = set(re.findall(r"(?:ipc|local)://(@[^ ;]+)", file.read()))
        sockets = {line.split()[-1] for line in self.unix_sockets().splitlines()}
        if names & sockets:
            raise Lost(f"sockets remain: {names & sockets}")
        shared = [name for name in os.listdir("/dev/shm")
                  if "muster" in name and not name.startswith(OF_OTHERS)]
        if shared:
            raise Lost(f"shared memory remains: {shared}")
        if self.descriptors and max(self.descriptors) > self.descriptors[0]:
            raise Lost(f"the launcher's number of descriptors grew: {self.descriptors}")

    def unix_sockets(self):
        with open("/proc/net/unix") as file:
            return file.read()

    def board_may_lack(self):
        """Returns whether TensorBoard data may be missing: data lost on a full disk is not written again."""
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
