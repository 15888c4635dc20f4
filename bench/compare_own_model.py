#!/usr/bin/env python3
"""Compares muster.torch with plain PyTorch and with DistributedDataParallel over gloo: samples per second of the same
models, interleaved, as ratios.

    bench/compare_own_model.py --python VENV/bin/python [--models mnist,resnet18] [--rounds 5] [--workers 2]

Checks that the losses of all contenders agree. Prints the median over the rounds, and the ratio to DDP of the same round
as a median with its range.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROGRAM = os.path.join(SOURCE, "bench", "peers", "own_model.py")
# model: batch, steps, the largest relative difference of a loss
MODELS = {"mnist": (256, 40, 1e-3), "resnet18": (64, 12, 0.1), "transformer": (32, 20, 1e-3), "mlp": (64, 20, 1e-3)}
WARM_UP = 3


def run(arguments, mode, name):
    """Returns samples per second and the losses."""
    batch, steps, _ = MODELS[name]
    words = [arguments.python, PROGRAM, mode, name, str(batch), str(steps), arguments.update]
    environment = dict(os.environ, PYTHONPATH=os.path.join(SOURCE, "python"))
    with tempfile.TemporaryDirectory() as folder:
        if mode == "ddp":
            words[1:1] = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(arguments.workers)]
            environment["OMP_NUM_THREADS"] = str(max(1, len(os.sched_getaffinity(0)) // arguments.workers))
        elif mode == "muster":
            config = os.path.join(folder, "job.txtpb")
            with open(config, "w") as file:
                file.write(f"run {{ steps: {steps} global_batch: {batch} slices: {arguments.workers} log_every_steps: 1 }} "
                           f"checkpoint {{ keep_last: 0 }} tensorboard {{ enabled: false }}")
            words = [os.path.join(arguments.bin, "muster"), "launch", config, "--run-dir", os.path.join(folder, "run"),
                     "--workers", str(arguments.workers), "--", *words]
        done = subprocess.run(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              timeout=900)
        output = done.stdout
        if mode == "muster" and done.returncode == 0:
            with open(os.path.join(folder, "run", "worker-0.log")) as file:
                output = file.read()
            with open(os.path.join(folder, "run", "metrics.jsonl")) as file:
                lines = [json.loads(line) for line in file]
            losses = [line["train_loss"] for line in lines if "train_loss" in line and not line.get("final")]
        if done.returncode != 0:
            sys.exit(f"{' '.join(words)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    result = json.loads(next(line for line in output.splitlines() if line.startswith("{")))
    return batch * (steps - WARM_UP) / result["seconds"], losses if mode == "muster" else result["losses"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True, help="a Python with torch and torchvision")
    parser.add_argument("--bin", default=os.path.join(SOURCE, "build", "release", "bin"))
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--update", default="server", choices=("server", "program"),
                        help="what updates the weights with muster (prepare(update=...))")
    arguments = parser.parse_args()
    print(f"{'model':12} {'samples/s':>10}: plain, DDP, muster; muster / DDP, muster / plain (median, range)")
    for name in arguments.models.split(","):
        rates = {"plain": [], "ddp": [], "muster": []}
        for _ in range(arguments.rounds):
            losses = {}
            for mode in rates:
                rate, losses[mode] = run(arguments, mode, name)
                rates[mode].append(rate)
            if len(losses["muster"]) != MODELS[name][1]:
                sys.exit(f"{name}: expected {MODELS[name][1]} losses, got {losses['muster']}")
            for ours, ddp in zip(losses["muster"], losses["ddp"]):
                if abs(ours - ddp) > MODELS[name][2] * max(abs(ddp), 1):
                    sys.exit(f"{name}: the losses differ: {losses}")
        text = [f"{statistics.median(rates[mode]):.1f}" for mode in rates]
        for peer in ("ddp", "plain"):
            ratios = sorted(ours / other for ours, other in zip(rates["muster"], rates[peer]))
            text.append(f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")
        print(f"{name:12} " + ", ".join(text), flush=True)


main()
