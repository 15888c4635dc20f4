#!/usr/bin/env python3
"""Photos per second that training gets from a folder: Muster's prefetch threads against torchvision's DataLoader
with its best number of workers. Both decode, cut a RandomResizedCrop of 224, flip and normalize the same files,
one after the other, --rounds times; the ratio is that of the medians.

    bench/compare_input.py --python VENV/bin/python --data DIR [--rounds 5 --seconds 5]

VENV has torchvision. DIR/train holds a folder of JPEG files for each class. The files should fit into the
system's cache, since the disk is not what is compared.
"""
import argparse
import os
import re
import statistics
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

TORCHVISION = """
import sys, time, torch
from torchvision import datasets, transforms
folder, workers, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
torch.set_num_threads(1)
steps = transforms.Compose([
    transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.ToTensor(),
    transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])])
loader = torch.utils.data.DataLoader(datasets.ImageFolder(folder + "/train", steps), batch_size=32, shuffle=True,
                                     num_workers=workers, persistent_workers=True)
for images, labels in loader:  # the workers have started
    assert torch.isfinite(images).all()
count, start = 0, time.monotonic()
while time.monotonic() - start < seconds:
    for images, labels in loader:
        count += len(labels)
        if time.monotonic() - start >= seconds:
            break
print(count / (time.monotonic() - start))
"""


def run(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{command[0]}: {done.stderr}")
    return float(re.match(r"[0-9.]+", done.stdout)[0])


def main():
    cores = len(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True, help="a Python that has torchvision")
    parser.add_argument("--data", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--bin", default=os.path.join(ROOT, "build/release/bin"))
    arguments = parser.parse_args()

    def muster(threads):
        return run([os.path.join(arguments.bin, "image_bench"), "--data", arguments.data, "--threads", str(threads),
                    "--seconds", str(arguments.seconds)])

    def torchvision(workers):
        return run([arguments.python, "-c", TORCHVISION, arguments.data, str(workers), str(arguments.seconds)])

    best = max((1, cores, cores + 1, 2 * cores), key=torchvision)
    ours, theirs = [], []
    for _ in range(arguments.rounds):
        ours.append(muster(cores))
        theirs.append(torchvision(best))
    print(f"Muster, {cores} threads: {statistics.median(ours):.0f} photos/s ({min(ours):.0f} to {max(ours):.0f})")
    print(f"torchvision, {best} workers: {statistics.median(theirs):.0f} photos/s ({min(theirs):.0f} to {max(theirs):.0f})")
    print(f"ratio: {statistics.median(ours) / statistics.median(theirs):.2f}")


if __name__ == "__main__":
    main()
