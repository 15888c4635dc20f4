#!/usr/bin/env python3
"""What checkpoints cost a training: the same run with one every few seconds and with only those at
its two ends, in turn; images per second of the whole run but its first interval, medians, and their
ratio.

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

import compare_training

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def rate_of(rates):
    """Of intervals of as many steps each, the first left out: its caches are cold."""
    return statistics.harmonic_mean(rates[1:])


def written(folder):
    """How many checkpoints the server's log of the newest run tells of, without those at its two ends."""
    newest = max((entry.path for entry in os.scandir(folder) if entry.is_dir()), key=os.path.getmtime)
    with open(os.path.join(newest, "server.log")) as log:
        return len(set(re.findall(r"info: checkpoint .*/step-(\d+)", log.read()))) - 2


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
    with_them, without = [], []
    compare_training.warn_if_busy(what)
    for _ in range(arguments.rounds):
        rates, _, ours = compare_training.launch(arguments, folder, what, 2, steps,
                                                 [f"checkpoint.every_minutes={arguments.every / 60}"])
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
          f"[{min(ratios):.4f} .. {max(ratios):.4f}]", flush=True)


if __name__ == "__main__":
    main()
