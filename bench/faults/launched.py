"""Faults in a run of `muster launch`, which replaces lost processes."""
import errno
import os
import signal
import time

from faults.damage import checkpoints_of, damage
from faults.run import PATIENCE_S, Lost, Run, Stuck, eventually
from job_processes import processes_of

NO_DISK = (os.strerror(errno.ENOSPC), os.strerror(errno.EIO))


MOST_WORKERS = 4
# The number of workers that a fault may cost. Losing a server ends all workers, perhaps before the
# launcher knows why.
WORKERS_LOST = {"worker": 1, "stop": 1, "workers": MOST_WORKERS, "server": MOST_WORKERS, "hang": MOST_WORKERS,
                "damage": MOST_WORKERS, "disk": MOST_WORKERS}
SERVERS_LOST = ("server", "hang", "damage", "disk")


class LaunchedRun(Run):
    def __init__(self, chaos, seed):
        super().__init__(chaos, seed)
        self.failed_before = 0  # number of failed calls when the launcher was started

    def start(self, arguments):
        # The exact maxima, so that counting a worker or a server twice would end the run.
        workers = sum(WORKERS_LOST.get(fault.kind, 0) for fault in self.plan.faults)
        servers = sum(fault.kind in SERVERS_LOST for fault in self.plan.faults)
        settings = [f"cluster.transport={self.plan.transport}", f"cluster.max_restarts={workers}",
                    f"run.max_restarts={servers}", *self.plan.settings]
        size = os.path.getsize(self.log) if os.path.exists(self.log) else 0
        if self.preloaded:
            self.preloaded.heal()
            self.failed_before = self.preloaded.failed()
        words = [f"{self.chaos.bin}/muster", "launch", *arguments]
        for setting in settings:
            words += ["--set", setting]
        self.first = self.spawn(words, self.log)
        self.shows_life(self.log, size)

    def begin(self):
        self.start([self.chaos.config(self.plan.variant), "--run-dir", self.folder])

    def resume(self, rng):
        self.descriptors = []
        self.start(["--resume", self.folder, "--workers", str(rng.randint(1, MOST_WORKERS))])

    def over(self):
        """Checks that a run that ends because of the disk says so, and resumes it when the disk works again."""
        if self.first.poll() is None:
            return False
        if self.first.returncode in (0, -signal.SIGKILL) or not self.preloaded:
            return True
        with open(self.log) as file:
            end = file.read()[-8000:]
        named = any(error in end for error in NO_DISK)
        if self.preloaded.failed() == self.failed_before or not named:
            return True
        self.done["resumed after the disk"] += 1
        self.start(["--resume", self.folder])
        return False

    def went_on(self):
        return self.said("Resumed from step")

    def replaced(self, before):
        """Waits until the launcher has replaced the lost server."""
        begin = time.monotonic()
        eventually(lambda: self.over() or self.went_on() > before, PATIENCE_S, "another server continues")
        self.chaos.recovery.append(time.monotonic() - begin)
        self.note_descriptors()

    def do_server(self, rng):
        before = self.went_on()
        self.kill("muster-server", rng.choice([signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT]), rng)
        self.replaced(before)

    def do_hang(self, rng):
        before = self.went_on()
        self.kill("muster-server", signal.SIGSTOP, rng)
        self.replaced(before)

    def do_workers(self, _rng):
        for pid in self.member("muster-worker"):
            os.kill(pid, signal.SIGKILL)

    def kill_launcher(self):
        self.first.kill()
        self.first.wait()
        eventually(lambda: not processes_of(self.folder), 10, "no process outlives the launcher")

    def do_launcher(self, rng):
        self.kill_launcher()
        self.resume(rng)

    def do_damage(self, rng):
        """Damages the newest checkpoint. The launcher or --resume must report this and use the previous one."""
        restarted, before = rng.random() < 0.5, self.went_on()
        if restarted:
            self.first.send_signal(signal.SIGSTOP)
            self.kill("muster-server", signal.SIGKILL, rng)
            # A worker that has not joined yet waits for a server for deadlines.start_s, 30 s.
            eventually(lambda: not self.member("muster-worker"), 45, "workers end without their server")
        else:
            self.kill_launcher()
        names = checkpoints_of(self.folder)
        hurt = len(names) > 1
        if hurt:
            at = f"{self.folder}/checkpoints/"
            what = damage(rng, at + names[-1], at + names[-2], self.chaos.foreign(self.plan.variant))
            self.done["damage: " + what.split()[0]] += 1
        if restarted:
            self.first.send_signal(signal.SIGCONT)
            self.replaced(before)
        else:
            self.resume(rng)
        if not hurt:
            return False
        eventually(lambda: self.over() or self.said(f"{names[-1]} is damaged"), 20,
                   f"a message that {names[-1]} is damaged ({what})")

    def do_clock(self, rng):
        """Makes the wall clock of this job jump to within an hour of the correct time."""
        self.preloaded.set_clock(rng.randint(-3600, 3600))

    def do_disk(self, rng):
        """Makes some calls of one program fail that change files of the run. The launcher makes few of these calls."""
        before, went_on = self.preloaded.failed(), self.went_on()
        error, many = rng.choice([errno.ENOSPC, errno.EIO]), rng.choice([1, 1, 1, 2, 5, 40])
        if rng.random() < 0.8:
            self.preloaded.fail("server", rng.randint(1, 60), many, error)
        else:
            self.preloaded.fail("launcher", rng.randint(1, 3), many, error)
            victim = rng.choice(["muster-worker", "muster-server"])
            self.kill(victim, signal.SIGKILL, rng)
            if victim == "muster-server":
                self.replaced(went_on)
        try:
            eventually(lambda: self.over() or self.preloaded.failed() > before, 2, "the disk fails")
        except Stuck:
            pass
        time.sleep(0.1 * rng.random())
        self.preloaded.heal()
        return self.preloaded.failed() > before

    def finish(self):
        self.await_end()
        if self.first.returncode != 0:
            raise Lost(f"the launcher exited with code {self.first.returncode}")
