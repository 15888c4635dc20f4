"""Compares two runs that take turns: one is stopped while the other runs, so that changes in the machine's speed
affect both."""
import os
import signal
import statistics
import time

from job_processes import processes_of

TURN_S = 0.4
PAUSE_S = 0.2  # steps longer than this contained a pause


class _One:
    def __init__(self, job):
        self.job = job
        server = job.server()
        self.few = [job.launcher.pid, server]  # not workers
        self.all = self.few + [pid for pid in processes_of(job.folder) if pid not in self.few]
        self.turns, self.cpu = [], {"few": 0.0, "all": 0.0}
        self.steps = 0

    def signal(self, number):
        # The launcher stops first and continues last, so that it never sees the others stopped.
        for pid in self.all if number == signal.SIGSTOP else reversed(self.all):
            os.kill(pid, number)

    def go_on(self, seconds):
        before = self._seconds_of(self.few), self._seconds_of(self.all), self.job.step()
        begin = time.monotonic()
        self.signal(signal.SIGCONT)
        time.sleep(seconds)
        self.signal(signal.SIGSTOP)
        time.sleep(0.01)  # lets the reader read the last line
        self.turns.append((begin, time.monotonic()))
        self.cpu["few"] += self._seconds_of(self.few) - before[0]
        self.cpu["all"] += self._seconds_of(self.all) - before[1]
        self.steps += self.job.step() - before[2]

    @staticmethod
    def _seconds_of(pids):
        total = 0
        for pid in pids:
            for task in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{task}/schedstat") as file:
                    total += int(file.read().split()[0])
        return total / 1e9

    def step_times(self):
        """Returns the mean duration of each turn's steps, without the first and the slowest ones; None if there are
        too few."""
        steps = list(self.job.steps)
        took = [(at, after["elapsed_s"] - before["elapsed_s"])
                for (_, before), (at, after) in zip(steps, steps[1:])]
        means = []
        for begin, end in self.turns:
            mine = sorted([seconds for at, seconds in took if begin <= at < end and seconds < PAUSE_S][1:])
            means.append(statistics.mean(mine[:len(mine) * 9 // 10]) if len(mine) > 1 else None)
        return means


def compare(first, second, turns):
    """Compares the second job with the first. Returns by which fraction its steps are longer, and how much more
    processor time its server and launcher need per step, as a fraction of the time of all processes of the first
    job."""
    both = [_One(first), _One(second)]
    for one in both:
        one.signal(signal.SIGSTOP)
    for turn in range(turns):
        for one in both if turn % 2 else both[::-1]:
            one.go_on(TURN_S)
    a, b = both
    longer = statistics.mean(y / x - 1 for x, y in zip(a.step_times(), b.step_times()) if x and y)
    more = (b.cpu["few"] / b.steps - a.cpu["few"] / a.steps) / (a.cpu["all"] / a.steps)
    return longer, more


def interval(values):
    """Returns the mean and its uncertainty (twice its standard error)."""
    return statistics.mean(values), 2 * statistics.stdev(values) / len(values) ** 0.5
