#!/usr/bin/env python3
"""What checkpoints cost a training: the same run with one every few seconds and with only those at
its two ends, in turn; images per second of the whole run but its first interval, medians, and their
ratio. Beside it what two runs of the same do not differ by: the processor time of the thread that writes
them, as a share of all cores' time.

    bench/compare_checkpoint_rate.py [--bin build/release/bin] [--what resnet20,multigpu_cnn]
                                     [--every 10] [--seconds 45] [--rounds 5]

2 workers of 1 thread each, on images that are made up (bench/compare_training.py). A round counts only
if both runs end with the same weights_hash, and the one with checkpoints wrote as many as fell due, less
one.
"""
import argparse
import os
import re
import statistics
import tempfile
import threading
import time

import compare_training
from job_processes import member

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def rate_of(rates):
    """Of intervals of as many steps each, the first left out: its caches are cold."""
    return statistics.harmonic_mean(rates[1:])


def written(folder):
    """How many checkpoints the server's log of the newest run tells of, without those at its two ends."""
    newest = max((entry.path for entry in os.scandir(folder) if entry.is_dir()), key=os.path.getmtime)
    with open(os.path.join(newest, "server.log")) as log:
        return len(set(re.findall(r"info: checkpoint .*/step-(\d+)", log.read()))) - 2


class Writer:
    """Of a run in a folder: the processor time of its server's thread that writes checkpoints, as a share of the
    time of all cores since it was seen first."""

    def __init__(self, folder):
        self.folder, self.seen, self.ended = folder, [], threading.Event()
        self.thread = threading.Thread(target=self._watch)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()

    def _watch(self):
        while not self.ended.wait(0.25):
            for server in member(self.folder, "muster-server"):
                self._look_at(f"/proc/{server}/task")

    def _look_at(self, tasks):
        try:
            for task in os.listdir(tasks):
                with open(f"{tasks}/{task}/comm") as comm, open(f"{tasks}/{task}/schedstat") as file:
                    if comm.read().strip() == "checkpoints":
                        self.seen.append((time.monotonic(), int(file.read().split()[0]) / 1e9))
        except OSError:
            pass  # it has ended

    def share(self):
        (begin, before), (end, after) = self.seen[0], self.seen[-1]
        return (after - before) / (end - begin) / len(os.sched_getaffinity(0))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(ROOT, "build/release/bin"))
    parser.add_argument("--what", default="resnet20,multigpu_cnn")
    parser.add_argument("--every", type=float, default=10, help="seconds between two checkpoints")
    parser.add_argument("--seconds", type=int, default=45)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    arguments.batch = None
    with tempfile.TemporaryDirectory(dir=os.path.join(ROOT, "build")) as folder:
        for what in arguments.what.split(","):
            compare(arguments, folder, what)


def compare(arguments, folder, what):
    rates, _, _ = compare_training.launch(arguments, folder, what, 2, 12)
    images = 2 * compare_training.batch_of(arguments, what)
    steps = int(arguments.seconds * rate_of(rates) / images)
    due = int(arguments.seconds / arguments.every)
    with_them, without, shares = [], [], []
    compare_training.warn_if_busy(what)
    for _ in range(arguments.rounds):
        with Writer(folder) as writer:
            rates, _, ours = compare_training.launch(arguments, folder, what, 2, steps,
                                                     [f"checkpoint.every_minutes={arguments.every / 60}"])
        shares.append(writer.share())
        with_them.append(rate_of(rates))
        count = written(folder)
        assert count >= due - 1, f"{count} checkpoints; {due} fell due"
        rates, _, plain = compare_training.launch(arguments, folder, what, 2, steps,
                                                  ["checkpoint.every_steps=0"])
        without.append(rate_of(rates))
        assert ours["weights_hash"] == plain["weights_hash"]
    ratios = [a / b for a, b in zip(with_them, without)]
    print(f"{what:<14} {steps} steps, {count} checkpoints: {statistics.median(with_them):8,.1f}  without "
          f"{statistics.median(without):8,.1f}  ratio {statistics.median(ratios):.4f} "
          f"[{min(ratios):.4f} .. {max(ratios):.4f}]; writing takes {statistics.median(shares):.2%} of all cores",
          flush=True)


if __name__ == "__main__":
    main()
