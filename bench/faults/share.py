"""Measures the share of all live workers' time that goes into steps that count, while workers are killed."""
import os
import random
import signal
import threading
import time

from faults.preloaded import Preloaded
from faults.watched import Watched


def kills_at(every, kills, seed):
    """Returns the step of each kill and the position within the step. The schedule is the same for all systems."""
    rng = random.Random(seed)
    return [(kill * every + (every - 1) // 2, rng.random()) for kill in range(kills)]


class LiveTime:
    """The total lifetime of processes."""

    def __init__(self, living):
        self.seconds, self.stop = 0.0, threading.Event()
        self.thread = threading.Thread(target=self._count, args=(living,))
        self.thread.start()

    def _count(self, living):
        last = time.monotonic()
        while not self.stop.wait(0.02):
            now = time.monotonic()
            self.seconds += (now - last) * len(living())
            last = now

    def end(self):
        self.stop.set()
        self.thread.join()
        return self.seconds


class Share:
    """The result: the useful `share` of `live` seconds. A step takes `step` seconds without kills and `disturbed`
    seconds with kills."""

    def __init__(self, share, live, step, disturbed):
        self.share, self.live, self.step, self.disturbed = share, live, step, disturbed

    def __str__(self):
        return (f"{100 * self.share:.0f} % of {self.live:.0f} s; a step took {self.disturbed:.1f} s instead of "
                f"{self.step:.1f} s")


def operations_in_a_step(bin_dir, folder, workers):
    """Returns the number of operations of all workers per step, which depends only on the config."""
    preloaded = Preloaded(f"{bin_dir}/libfaults_preloaded.so", folder + ".faults", folder)
    with Watched(bin_dir, folder, preloaded, batch=64, workers=workers) as job:
        job.reach(20)
        first, before = job.step(), preloaded.operations()
        job.reach(first + 100)
        return (preloaded.operations() - before) / (job.step() - first)


def of_muster(bin_dir, folder, workers, every, kills, seconds=5.0):
    """Measures Muster with steps in which the operations of each worker sleep for `seconds` in total, so that it needs
    no core. Only this sleep counts as useful, not delays due to a busy machine. All steps take this long, because the
    server's limit for slow workers depends on the duration of earlier steps."""
    in_a_step = operations_in_a_step(bin_dir, folder + ".counted", workers)
    preloaded = Preloaded(f"{bin_dir}/libfaults_preloaded.so", folder + ".faults", folder)
    preloaded.set_sleep(seconds * workers / in_a_step)
    rng = random.Random(workers)
    with Watched(bin_dir, folder, preloaded, batch=64, workers=workers) as job:
        job.reach(3)
        begin_step, begin, live = job.step(), time.monotonic(), LiveTime(job.workers)
        for step, part in kills_at(every, kills, every):
            job.reach(begin_step + step)
            time.sleep(part * seconds)
            os.kill(rng.choice(job.workers()), signal.SIGKILL)
        job.reach(begin_step + kills * every)
        done, took = job.step() - begin_step, time.monotonic() - begin
        lived = live.end()
    return Share(workers * seconds * done / lived, lived, seconds, took / done)
