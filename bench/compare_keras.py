#!/usr/bin/env python3
"""Compares muster.keras with plain Keras (without and with XLA) and with MirroredStrategy over two logical CPUs:
samples per second of the second epoch of the same models with fit and Adam, interleaved, as ratios.

    bench/compare_keras.py --python VENV/bin/python [--models mnist,resnet18] [--rounds 5]

Checks that the losses of all contenders agree. Prints the median over the rounds, and the ratio to the fastest peer of
the same round as a median with its range.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROGRAM = os.path.join(SOURCE, "bench", "peers", "keras_model.py")
# model: batch, steps of each of two epochs, the largest relative difference of the second one's mean loss
MODELS = {"mnist": (256, 60, 5e-3), "resnet18": (64, 8, 0.1), "mlp": (64, 12, 5e-2)}
MODES = ("plain", "compiled", "mirrored", "muster")


def run(arguments, mode, name):
    """Returns samples per second and the loss."""
    batch, steps, _ = MODELS[name]
    words = [arguments.python, PROGRAM, mode, name, str(batch), str(steps)]
    with tempfile.TemporaryDirectory() as folder:
        if mode == "muster":
            words = [os.path.join(arguments.bin, "muster"), "launch", "--run-dir", os.path.join(folder, "run"),
                     "--workers", "2", "--slices", "2", "--set", "checkpoint.keep_last=0", "--", *words]
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=900)
        if done.returncode != 0:
            sys.exit(f"{' '.join(words)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    result = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    return batch * steps / result["seconds"], result["loss"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True, help="a Python with tensorflow and keras")
    parser.add_argument("--bin", default=os.path.join(SOURCE, "build", "release", "bin"))
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    print(f"{'model':12} samples/s: {', '.join(MODES)}; muster / mirrored, muster / faster plain (median, range)")
    for name in arguments.models.split(","):
        rates = {mode: [] for mode in MODES}
        for _ in range(arguments.rounds):
            losses = {}
            for mode in MODES:
                rate, losses[mode] = run(arguments, mode, name)
                rates[mode].append(rate)
            if max(losses.values()) - min(losses.values()) > MODELS[name][2] * abs(losses["plain"]):
                sys.exit(f"{name}: the losses differ: {losses}")
        text = [f"{statistics.median(rates[mode]):.1f}" for mode in MODES]
        fastest = [max(pair) for pair in zip(rates["plain"], rates["compiled"])]
        for peer in (rates["mirrored"], fastest):
            ratios = sorted(ours / other for ours, other in zip(rates["muster"], peer))
            text.append(f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")
        print(f"{name:12} " + ", ".join(text), flush=True)


main()
