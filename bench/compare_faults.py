#!/usr/bin/env python3
"""Compares Muster and torchft by the share of their workers' time that is useful while workers are killed on the same
schedule. Both run at the same time.

    bench/compare_faults.py --python VENV/bin/python [--bin DIR] [--kills N]

Each system has two workers (replicas), which are restarted as soon as they have been killed. Steps take 5 s and mostly
sleep, so that the two jobs do not disturb each other. One run has a SIGKILL in every 5th step, another in every step.
Useful time is the time of committed steps (torchft) or of all slices of a step (Muster, which loses no steps).
"""
import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from faults.share import LiveTime, Share, kills_at, of_muster
from peer_python import PEERS

PROGRAM = os.path.join(PEERS, "torchft_replica.py")
SECONDS = 5.0


class Replica:
    def __init__(self, job, number):
        self.job, self.number, self.process = job, number, None
        self.log = f"{job.folder}.replica-{number}.log"
        self.start()

    def start(self):
        with open(self.log, "a") as out:
            self.process = subprocess.Popen([self.job.python, PROGRAM, self.job.address, str(self.number), str(SECONDS)],
                                            stdout=out, stderr=open(self.log + ".err", "a"), stdin=subprocess.DEVNULL)

    def steps(self):
        with open(self.log) as file:
            return [json.loads(line) for line in file if line.startswith("{") and line.endswith("\n")]


class Torchft:
    def __init__(self, python, folder):
        self.python, self.folder = python, folder
        self.lighthouse = subprocess.Popen([python, PROGRAM, "lighthouse"], stdout=subprocess.PIPE, text=True,
                                           stderr=subprocess.DEVNULL)
        self.address = self.lighthouse.stdout.readline().strip()
        self.replicas = [Replica(self, number) for number in range(2)]

    def step(self):
        return max([step["step"] for replica in self.replicas for step in replica.steps()], default=0)

    def tend(self):
        for replica in self.replicas:
            if replica.process.poll() is not None:
                replica.start()

    def reach(self, step, seconds=300):
        end = time.monotonic() + seconds
        while self.step() < step:
            self.tend()
            if time.monotonic() > end:
                raise SystemExit(f"torchft did not reach step {step} within {seconds} s; see {self.folder}.replica-*.err")
            time.sleep(0.01)

    def alone(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.tend()
            time.sleep(0.01)

    def together(self):
        """Waits until both replicas participate in a committed step."""
        end = time.monotonic() + 400
        while not all(r.steps() and r.steps()[-1]["replicas"] == 2 and r.steps()[-1]["committed"]
                      for r in self.replicas):
            self.tend()
            if time.monotonic() > end:
                raise SystemExit(f"torchft's replicas did not find each other within 400 s; see {self.folder}.replica-*.err")
            time.sleep(0.01)

    def attempts(self):
        steps = [step for replica in self.replicas for step in replica.steps()]
        return len(steps), sum(step["committed"] for step in steps)

    def end(self):
        for process in (*[replica.process for replica in self.replicas], self.lighthouse):
            process.kill()
            process.wait()


def of_torchft(python, folder, every, kills):
    job, rng = Torchft(python, folder), random.Random(2)
    try:
        job.together()
        begin_step, begin, (tried, committed) = job.step(), time.monotonic(), job.attempts()
        live = LiveTime(lambda: [r for r in job.replicas if r.process.poll() is None])
        for step, part in kills_at(every, kills, every):
            job.reach(begin_step + step)
            job.alone(part * SECONDS)
            rng.choice(job.replicas).process.send_signal(signal.SIGKILL)
            job.alone(0.1)
        job.reach(begin_step + kills * every)
        done, took, seconds = job.step() - begin_step, time.monotonic() - begin, live.end()
        all_tried, all_committed = (after - before for after, before in zip(job.attempts(), (tried, committed)))
    finally:
        job.end()
    return (Share(SECONDS * all_committed / seconds, seconds, SECONDS, took / done),
            f"{all_committed} of {all_tried} steps of replicas committed")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    default = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../build/release/bin")
    parser.add_argument("--bin", default=os.path.normpath(default), help="directory of the muster programs")
    parser.add_argument("--python", required=True, help="Python with torchft")
    parser.add_argument("--kills", type=int, default=8, help="number of kills, one per step; half as many with one per 5 steps")
    arguments = parser.parse_args()
    work, results = tempfile.mkdtemp(prefix="muster-compare-faults-"), {}
    for every, kills in ((5, max(1, arguments.kills // 2)), (1, arguments.kills)):
        def muster(every=every, kills=kills):
            results["Muster"] = of_muster(arguments.bin, f"{work}/muster-{every}", 2, every, kills), "no step lost"
        other = threading.Thread(target=muster)
        other.start()
        results["torchft"] = of_torchft(arguments.python, f"{work}/torchft-{every}", every, kills)
        other.join()
        for name, (share, more) in sorted(results.items()):
            print(f"a kill in every {'step' if every == 1 else f'{every}th step'}, {kills} kills: {name:8} useful {share}; "
                  f"{more}", flush=True)
    shutil.rmtree(work)
    return 0


if __name__ == "__main__":
    sys.exit(main())
