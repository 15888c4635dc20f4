"""Second workers with a taken rank. Each keeps requesting the rank until it is refused, the run ends, there is no server
any more, or the first worker is lost, in which case it may get the rank."""
import subprocess
import time

from faults.run import Lost, Stuck, eventually

COMPLETE, SILENT, GONE, REFUSED = 0, 5, 7, 8  # exit codes; the last is a refusal by the server
END_S = 20  # time to exit after losing the rank


class Rivals:
    def __init__(self, run):
        self.run = run
        self.asking = []
        self.replaced = []  # workers, with the time by which they must have exited

    def add(self, second):
        """Returns False if the run ended first."""
        second.troubles = self.run.troubles
        self.asking.append(second)
        eventually(lambda: self.run.over() or second not in self.asking or second.asks() or not second.alive(), 20,
                   f"an answer to a second rank {second.rank}; see {second.log}")
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
                raise Stuck(f"two workers have rank {first.rank}; see {first.log}")

    def seat(self, second):
        workers = self.run.workers
        first = next((worker for worker in workers if worker.rank == second.rank), None)
        if first is None:  # it has left
            workers.append(second)
            return
        workers[workers.index(first)] = second
        if not first.joined():  # it was restarted and is also requesting the rank
            first.process.kill()
        self.replaced.append((first, time.monotonic() + END_S))

    def judge(self, second):
        code = second.process.returncode
        expected = {COMPLETE, SILENT, REFUSED}
        if self.run.troubles != second.troubles:
            expected.add(GONE)
        if code not in expected:
            raise Lost(f"a second rank {second.rank} exited with code {code}, expected one of {sorted(expected)}; "
                       f"see {second.log}")
        if code == COMPLETE:
            eventually(lambda: self.run.first.poll() == 0, END_S, f"the run is complete, as reported in {second.log}")

    def finish(self):
        """Call when the run is over."""
        for worker in self.asking + [first for first, _ in self.replaced]:
            try:
                worker.process.wait(END_S)
            except subprocess.TimeoutExpired:
                raise Stuck(f"the worker did not exit at the end of the run; see {worker.log}") from None
        self.tend()
