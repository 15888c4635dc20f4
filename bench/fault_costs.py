#!/usr/bin/env python3
"""Measures the costs of faults and compares them with the goals: a table of goal, measurement and verdict.

    bench/fault_costs.py [--bin DIR] [--only NAME,NAME]

Uses four workers and 16 slices (`server`: two of each), shared memory (`kill`: also TCP and IPC), and the other
defaults of `muster launch`. Takes less than ten minutes. Parts:

    kill       SIGKILL to a worker: time until the server reports it, how much longer that step is, time from
               the start of the new worker until it takes part, lost steps
    stop       SIGSTOP to a worker: duration of that step
    server     SIGKILL to the server of a network with 25 million parameters: time until the next new step
    machinery  steps with on_lost_worker REPLACE and ABORT, two runs that alternate
    leaks      descriptors and memory of server and launcher over 300 lost workers
    share      steps of 5 s in which workers mostly sleep, so that four do not need four cores: the useful
               share of all live workers' time, with a kill in every 5th step and in every step
"""
import argparse
import os
import random
import shutil
import signal
import statistics
import sys
import tempfile
import threading
import time

from faults.alternating import compare, interval
from faults.share import of_muster
from faults.watched import Watched
from job_processes import descriptors_of

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")  # CPU only: otherwise a job would use idle GPUs

PARTS = ("kill", "stop", "server", "machinery", "leaks", "share")
LARGE = 'layer { name: "large" dense { units: 6104 } }'  # 16 x 16 x 16 inputs: 25 million weights
TRANSPORTS = ("LOCAL", "TCP", "IPC")
KILL_RUNS, STOPS, SERVER_KILLS, STARTS, TURNS, REJOINS = 12, 4, 3, 16, 16, 300


def median(values):
    return statistics.median(values)


class Costs:
    def __init__(self, arguments, work):
        self.bin, self.work, self.rows, self.random = arguments.bin, work, [], random.Random(1)
        self.lock = threading.Lock()

    def row(self, what, goal, measured, reached):
        with self.lock:
            self.rows.append((what, goal, measured, reached))
            verdict = {True: "reached", False: "NOT reached", None: "undecided"}[reached]
            print(f"{what:58} {goal:34} {measured:44} {verdict}", flush=True)

    def job(self, name, **settings):
        return Watched(self.bin, f"{self.work}/{name}", **settings)

    def kill(self):
        for transport in TRANSPORTS:
            self.kill_over(transport)

    def kill_over(self, transport):
        noticed, longer, usual, joined, lost = [], [], [], [], 0
        with self.job(f"kill-{transport}", cluster=f"transport: {transport}") as job:
            job.reach(30)
            for _ in range(KILL_RUNS):
                time.sleep(self.random.uniform(0.5, 0.8))
                old, begin = job.workers(), time.monotonic()
                os.kill(self.random.choice(old), signal.SIGKILL)
                noticed.append(job.event("worker_lost", begin)[0] - begin)
                started = job.wait(lambda: set(job.workers()) - set(old) and time.monotonic(), 30, "a new worker")
                at, line = job.event("worker_joined", begin)
                job.reach(line["step"] + 2)
                joined.append(next(now for now, step in job.steps if step["step"] >= line["step"] + 2) - started)
                usual.append(median([d for _, d, _ in job.durations()[:-2]][-20:]))
                # Either the step in which the worker was lost, or the next one, which was
                # restarted.
                longer.append(max(d for _, d, _ in job.durations(begin)[:2]) - usual[-1])
            numbers = [line["step"] for _, line in job.steps]
            lost = sum(b != a + 1 for a, b in zip(numbers, numbers[1:]))
        self.row(f"SIGKILL to a worker ({transport}): noticed after", "0.1 s",
                 f"median {1e3 * median(noticed):.0f} ms, at most {1e3 * max(noticed):.0f} ms", max(noticed) <= 0.1)
        self.row("… steps lost", "0", f"{lost} of {len(numbers)}", lost == 0)
        limit = [u + 0.2 for u in usual]
        self.row("… that step takes longer by", "redone compute (a step at most) + 0.2 s",
                 f"median {1e3 * median(longer):.0f} ms, at most {1e3 * max(longer):.0f} ms; a step: "
                 f"{1e3 * median(usual):.0f} ms", all(a <= b for a, b in zip(longer, limit)))
        self.row("… new worker: first step after its start", "2 s",
                 f"median {median(joined):.2f} s, at most {max(joined):.2f} s", max(joined) <= 2)

    def stop(self):
        took, usual = [], []
        with self.job("stop") as job:
            job.reach(30)
            for _ in range(STOPS):
                time.sleep(1)
                begin, victim = time.monotonic(), self.random.choice(job.workers())
                os.kill(victim, signal.SIGSTOP)
                usual.append(median([d for _, d, _ in job.durations()][-20:]))
                job.event("worker_fenced", begin)
                step = job.step()
                job.reach(step + 3)
                took.append(max(d for _, d, _ in job.durations(begin)))
                os.kill(victim, signal.SIGCONT)
                job.event("worker_joined", begin)
        limits = [3.5 * u + 1 for u in usual]
        self.row("SIGSTOP to a worker: that step", "3.5 x median + 1 s",
                 f"median {median(took):.2f} s, at most {max(took):.2f} s; limit {median(limits):.2f} s",
                 all(t <= limit for t, limit in zip(took, limits)))

    def server(self):
        took, worst, said = [], 0, 0
        with self.job("server", more=LARGE, batch=32, slices=2, workers=2, every=4) as job:
            for _ in range(SERVER_KILLS):
                job.reach(job.step() + 5, 300)
                job.wait(lambda: any("." not in n for n in os.listdir(f"{job.folder}/checkpoints")
                                     if n.startswith("step-")), 60, "a checkpoint")
                old, begin = job.server(), time.monotonic()
                os.kill(old, signal.SIGKILL)
                said += 1
                # Wait for the next step line that another server has written.
                job.wait(lambda: open(job.log).read().count("Resumed from step") >= said, 300, "a server")
                job.wait(lambda: job.steps[-1][0] > begin + 0.01 and job.server() != old, 300, "a step")
                at = next(now for now, _ in job.steps if now > begin + 0.05)
                took.append(at - begin)
                job.reach(job.step() + 1)
            newest = max((os.path.join(job.folder, "checkpoints", n) for n in os.listdir(f"{job.folder}/checkpoints")
                          if n.startswith("step-") and "." not in n), key=os.path.getmtime)
            worst = os.path.getsize(f"{newest}/tensors.safetensors")
        limit = 3 + worst / 1e9
        self.row(f"SIGKILL to the server, {worst / 1e6:.0f} MB of state: next step after", f"3 s + 1 GB/s = {limit:.1f} s",
                 f"median {median(took):.2f} s, at most {max(took):.2f} s", max(took) <= limit)

    def machinery(self):
        longer, more = [], []
        for start in range(STARTS):
            with self.job(f"abort-{start}", workers=2, cluster="on_lost_worker: ABORT") as without, \
                    self.job(f"replace-{start}", workers=2, cluster="on_lost_worker: REPLACE") as with_it:
                without.reach(30)
                with_it.reach(30)
                results = compare(without, with_it, TURNS)
                longer.append(results[0])
                more.append(results[1])
        for what, values in (("steps longer than with on_lost_worker ABORT by", longer),
                             ("… more processor time of server and launcher", more)):
            mean, error = interval(values)
            reached = True if mean + error <= 0.003 else None if mean - error <= 0.003 else False
            self.row(f"without faults: {what}" if values is longer else what, "0.3 %",
                     f"{100 * mean:+.2f} % (95 %: {100 * (mean - error):+.2f} to {100 * (mean + error):+.2f})", reached)

    def leaks(self):
        seen = []
        with self.job("leaks", batch=64) as job:
            job.reach(30)
            for rejoin in range(REJOINS):
                begin = time.monotonic()
                os.kill(self.random.choice(job.workers()), signal.SIGKILL)
                at, _ = job.event("worker_joined", begin)
                step = job.step()
                job.reach(step + 3)
                row = [rejoin]
                for pid in (job.server(), job.launcher.pid):
                    row += [descriptors_of(pid), anonymous(pid)]
                seen.append(row)
        half = seen[REJOINS // 5:]
        xs = [row[0] for row in half]
        for name, column in (("server", 1), ("launcher", 3)):
            counts = [row[column] for row in half]
            slope = statistics.linear_regression(xs, [row[column + 1] for row in half]).slope
            self.row(f"{REJOINS} lost workers: descriptors of the {name}", "flat",
                     f"{counts[0]} to {counts[-1]}, at most {max(counts)}", counts[-1] <= counts[0] + 1)
            self.row(f"… its memory, for 1,000", "1 MiB", f"{slope * 1000 / 1024:+.2f} MiB", slope * 1000 <= 1024)

    def share_with(self, every, goal, kills):
        found = of_muster(self.bin, f"{self.work}/share-{every}", 4, every, kills)
        self.row(f"steps of {found.step:.1f} s, a kill in every {'one' if every == 1 else f'{every}th'}: useful share",
                 f"{100 * goal:.0f} %", f"{found}, {kills} kills", found.share >= goal)

    def share(self):
        """Runs both schedules at once, because their workers sleep."""
        runs = [threading.Thread(target=self.share_with, args=args) for args in ((5, 0.95, 4), (1, 0.7, 12))]
        for run in runs:
            run.start()
        for run in runs:
            run.join()


def anonymous(pid):
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssAnon"))


def machine():
    with open("/proc/cpuinfo") as file:
        model = next(line.split(":")[1].strip() for line in file if line.startswith("model name"))
    return f"{len(os.sched_getaffinity(0))} cores of {model}, load {os.getloadavg()[0]:.1f} at the start"


def parts_of(text):
    parts = text.split(",")
    if not set(parts) <= set(PARTS):
        raise argparse.ArgumentTypeError(f"{text}: expected any of {', '.join(PARTS)}")
    return parts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    default = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../build/release/bin")
    parser.add_argument("--bin", default=os.path.normpath(default), help="directory of the muster programs")
    parser.add_argument("--only", type=parts_of, default=PARTS, help="default: all parts")
    arguments = parser.parse_args()
    work = tempfile.mkdtemp(prefix="muster-fault-costs-")
    costs, begin = Costs(arguments, work), time.monotonic()
    print(machine(), flush=True)
    for part in PARTS:
        if part in arguments.only:
            getattr(costs, part)()
    print(f"{sum(row[3] is True for row in costs.rows)} of {len(costs.rows)} goals reached, in {time.monotonic() - begin:.0f} s")
    shutil.rmtree(work)
    return 0


if __name__ == "__main__":
    sys.exit(main())
