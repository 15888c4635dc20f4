#!/usr/bin/env python3
"""What does a worker at half speed cost, with even shares and with measured ones?

    bench/compare_shares.py [--build DIR] [--workers 2,4] [--slices 16,64] [--steps N] [--transport T]

Trains a small network whose workers sleep in each call of oneDNN (slow_compute.cc), rank 1 twice as long: so
two cores are enough for four workers, and little depends on what else the machine does; `chrt -f 1` before the
command, as root, makes that less still. Of each number of
workers and slices it prints a step's time with cluster.shares EVEN and MEASURED, the latter from the first change of
shares on; and what the slowest rank would compute at best, by the times of a slice that the shares were changed
for: with whole slices, and if slices could be cut. The hashes of the weights must be equal.
"""
import argparse
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")  # measured on the CPU: a job would take idle GPUs

CONFIG = """
run { seed: 1 steps: %(steps)d global_batch: %(slices)d slices: %(slices)d log_every_steps: 1 }
data { format: SYNTHETIC synthetic { height: 8 width: 8 channels: 1 classes: 4
                                     train_samples: 4096 test_samples: 0 } }
model {
  layer { name: "hidden" dense { units: 32 } }
  layer { name: "relu" relu {} }
  layer { name: "out" dense { units: 4 } }
  layer { name: "loss" softmax_cross_entropy {} }
}
optimizer { type: ADAM }
learning_rate { base: 0.001 }
evaluation { every_epochs: 0 skip_final: true }
tensorboard { enabled: false }
checkpoint { keep_last: 0 }
cluster { workers: %(workers)d transport: %(transport)s shares: %(shares)s }
"""


def train(arguments, work, **settings):
    """The last line of metrics, all before it, and what stood on the terminal."""
    name = "-".join(str(value) for value in settings.values())
    path = f"{work}/{name}.txtpb"
    with open(path, "w") as file:
        file.write(CONFIG % {**settings, "steps": arguments.steps, "transport": arguments.transport})
    environment = {**os.environ, "MUSTER_SLEEP_US": str(arguments.sleep_us), "MUSTER_SLOW_RANK": "1",
                   "MUSTER_SLOW_FACTOR": str(arguments.factor),
                   "LD_PRELOAD": f"{arguments.build}/lib/libslow_compute.so"}
    run = subprocess.run([f"{arguments.build}/bin/muster", "launch", path, "--run-dir", f"{work}/{name}"],
                         env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                         timeout=600)
    if run.returncode != 0:
        sys.exit(f"{name}: exit code {run.returncode}\n{run.stdout}")
    with open(f"{work}/{name}/metrics.jsonl") as file:
        lines = [json.loads(line) for line in file]
    return lines[-1], lines[:-1]


def usual_step(lines, first):
    """The median over the steps from this one on; `step` counts those that are done."""
    times = [line["step_ms"] for line in lines if "event" not in line and line["step"] > first + 1]
    return statistics.median(times) if times else float("nan")


def best_split(slices, times):
    """What the slowest takes at best: whole slices, and if they could be cut."""
    sizes = [1] * len(times)
    for _ in range(slices - len(times)):
        who = min(range(len(times)), key=lambda i: (sizes[i] + 1) * times[i])
        sizes[who] += 1
    return max(n * t for n, t in zip(sizes, times)), slices / sum(1 / t for t in times), sizes


def compare(arguments, work, workers, slices):
    last, lines = train(arguments, work, shares="EVEN", workers=workers, slices=slices)
    measured_last, measured = train(arguments, work, shares="MEASURED", workers=workers, slices=slices)
    if last["weights_hash"] != measured_last["weights_hash"]:
        sys.exit(f"{workers} workers, {slices} slices: weights differ: {last['weights_hash']} with EVEN, "
                 f"{measured_last['weights_hash']} with MEASURED")
    changes = [line for line in measured if line.get("event") == "shares_changed"]
    even = usual_step(lines, 0)
    if not changes:
        print(f"{workers:7} {slices:6}  {even:8.1f} {usual_step(measured, 0):8.1f}  shares have not moved",
              flush=True)
        return
    times = [share["slice_ms"] for share in changes[-1]["shares"]]
    whole, cut, best = best_split(slices, times)
    step = usual_step(measured, changes[0]["from_step"])
    shares = [share["slices"] for share in changes[-1]["shares"]]
    print(f"{workers:7} {slices:6}  {even:8.1f} {step:8.1f}  {whole:8.1f} {cut:8.1f}  "
          f"{100 * (even / cut - 1):+6.1f} % {100 * (step / whole - 1):+6.1f} % {100 * (step / cut - 1):+6.1f} %"
          f"  {len(changes)}, since step {changes[-1]['from_step']}: {shares} (best: {best})  "
          f"{last['weights_hash']}", flush=True)


def numbers(text):
    if not re.fullmatch(r"[0-9]+(,[0-9]+)*", text):
        raise argparse.ArgumentTypeError(f"{text}: expected numbers, separated by commas")
    return [int(word) for word in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    default = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../build/release")
    parser.add_argument("--build", default=os.path.normpath(default), help="where bin/ and lib/ are")
    parser.add_argument("--workers", type=numbers, default=[2, 4])
    parser.add_argument("--slices", type=numbers, default=[16, 64])
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--transport", default="LOCAL")
    parser.add_argument("--sleep-us", type=float, default=2000, help="in each call of oneDNN")
    parser.add_argument("--factor", type=float, default=2, help="how much slower rank 1 is")
    arguments = parser.parse_args()
    print("                   ms a step           ms at best         EVEN   MEASURED over the best")
    print("workers slices      EVEN MEASURED     whole      cut   over cut    whole      cut  changes of shares")
    with tempfile.TemporaryDirectory(prefix="muster-shares-") as work:
        for workers, slices in itertools.product(arguments.workers, arguments.slices):
            compare(arguments, work, workers, slices)
    return 0


if __name__ == "__main__":
    sys.exit(main())
