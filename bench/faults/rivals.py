"""Second workers with a rank that is taken. Each asks for the seat, whatever else happens meanwhile, until it is
refused, the run ends, no server is there any more, or the first worker is lost: then it may have the seat."""
import subprocess
import time

from faults.run import Lost, Stuck, eventually

COMPLETE, SILENT, GONE, REFUSED = 0, 5, 7, 8  # the run, the server; by the server
END_S = 20  # for who has lost its seat


class Rivals:
    def __init__(self, run):
        self.run = run
        self.asking = []
        self.replaced = []  # with when they must have ended

    def add(self, second):
        """False: it came too late, and the run is over."""
        second.troubles = self.run.troubles
        self.asking.append(second)
        eventually(lambda: self.run.over() or second not in self.asking or second.asks() or not second.alive(), 20,
                   f"an answer to a second rank {second.rank}; {second.log}")
        if second in self.asking and not second.asks():
            self.run.wait(1)
            self.asking.remove(second)
            if self.run.over():
                second.process.kill()
                second.process.wait()
                return False
            self.judge(second)
        return True

    def pids(self):
        return [second.process.pid for second in self.asking]

    def tend(self):
        for second in list(self.asking):
            if second.joined():
                self.asking.remove(second)
                self.seat(second)
            elif second.asks() and not second.alive():
                self.asking.remove(second)
                self.judge(second)
        for first, end in self.replaced:
            if first.alive() and time.monotonic() > end:
                raise Stuck(f"two workers have rank {first.rank}: {first.log}")

    def seat(self, second):
        workers = self.run.workers
        first = next((worker for worker in workers if worker.rank == second.rank), None)
        if first is None:  # it has left
            workers.append(second)
            return
        workers[workers.index(first)] = second
        if not first.joined():  # it was started again, and asks as well
            first.process.kill()
        self.replaced.append((first, time.monotonic() + END_S))

    def judge(self, second):
        code = second.process.returncode
        expected = {COMPLETE, SILENT, REFUSED}
        if self.run.troubles != second.troubles:
            expected.add(GONE)
        if code not in expected:
            raise Lost(f"a second rank {second.rank} ended with {code}, expected one of {sorted(expected)}; {second.log}")
        if code == COMPLETE:
            eventually(lambda: self.run.first.poll() == 0, END_S, f"the run is complete, as {second.log} says")

    def finish(self):
        """The run is over."""
        for worker in self.asking + [first for first, _ in self.replaced]:
            try:
                worker.process.wait(END_S)
            except subprocess.TimeoutExpired:
                raise Stuck(f"{worker.log}: it does not end with its run") from None
        self.tend()
