#!/usr/bin/python3
"""Compares a round of push, average, update and pull between Muster and its peers, interleaved in one run.

    bench/compare_sync.py [--bin build/release/bin] [--sizes 4096,1048576,104857600] [--workers 1,2,4,8]
                          [--optimizer MOMENTUM] [--rounds 3] [--only 'LOCAL|PyTorch'] [--json]
                          [--python /usr/bin/python3] [--bf16] [--compile]

Contenders: Muster with the whole update (sync_bench) over LOCAL (with and without workers that write their gradients
and read the weights), IPC, TCP, and TCP with 16 bits; PyTorch with all_reduce over gloo and the same optimizer in each
process (peers/allreduce_step.py); and a bare ZeroMQ server over TCP and IPC that averages chunks but updates nothing
(peers/zmq_server.cc). Each round runs every contender once. The output shows medians of the p50s and of the ratios
within a round. Only verified results are shown.

--python selects the Python with PyTorch; if it has no PyTorch, that peer is skipped with a message.
--bf16 sends the peer's gradients as bfloat16; --compile runs its optimizer through torch.compile.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys

import peer_python

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LOCAL = "Muster LOCAL"
TORCH = "PyTorch gloo + optimizer"


def measure(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def contenders(arguments, workers, size):
    common = ["--workers", str(workers), "--size", str(size)]
    muster = [os.path.join(arguments.bin, "sync_bench"), "--json", "--optimizer", arguments.optimizer] + common
    bare = [os.path.join(arguments.bin, "zmq_server")] + common
    found = {LOCAL: muster + ["--transport", "LOCAL"],
             "Muster LOCAL, workers write": muster + ["--transport", "LOCAL", "--write"],
             "Muster IPC": muster + ["--transport", "IPC"],
             "Muster TCP": muster + ["--transport", "TCP"],
             "Muster TCP, BF16": muster + ["--transport", "TCP", "--wire-dtype", "BF16"],
             "bare ZeroMQ server IPC": bare + ["--transport", "IPC"],
             "bare ZeroMQ server TCP": bare + ["--transport", "TCP"]}
    if arguments.has_peer:
        found[TORCH] = peer_python.command(arguments, "allreduce_step.py") + [
            "--optimizer", arguments.optimizer, "--seconds", "2"] + common
    return {name: command for name, command in found.items() if name == LOCAL or re.search(arguments.only, name)}


def compare(arguments, workers, size):
    commands = contenders(arguments, workers, size)
    results = {name: [] for name in commands}
    for _ in range(arguments.rounds):
        for name, command in commands.items():
            results[name].append(measure(command))
    baseline = [result["p50_us"] for result in results[LOCAL]]
    rows = []
    for name, runs in results.items():
        p50 = [run["p50_us"] for run in runs]
        rows.append({"name": name, "workers": workers, "bytes": runs[0]["bytes"], "p50_us": statistics.median(p50),
                     "p99_us": statistics.median(run["p99_us"] for run in runs),
                     "times_muster_local": statistics.median(a / b for a, b in zip(p50, baseline)),
                     "limit_ratio": statistics.median(run["limit_ratio"] for run in runs)
                     if "limit_ratio" in runs[0] else None})
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(ROOT, "build/release/bin"))
    parser.add_argument("--sizes", default="4096,65536,1048576,4194304,33554432,104857600")
    parser.add_argument("--workers", default="2")
    parser.add_argument("--optimizer", default="MOMENTUM",
                        choices=["SGD", "MOMENTUM", "NESTEROV", "ADAM", "ADAMW", "RMSPROP"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="", help="regular expression of contenders besides Muster LOCAL")
    parser.add_argument("--json", action="store_true")
    peer_python.add_arguments(parser)
    arguments = parser.parse_args()
    peer = peer_python.describe(arguments)
    arguments.has_peer = peer is not None
    # On stderr, because with --json, stdout must contain only objects.
    print(peer or f"no PyTorch in {arguments.python}: skipping that peer", file=sys.stderr, flush=True)
    if not arguments.json:
        print(f"{arguments.optimizer}; times are p50 and p99 of a round, medians of {arguments.rounds} runs\n")
    jobs = [(int(workers), int(size)) for workers in arguments.workers.split(",") for size in arguments.sizes.split(",")]
    for workers, size in jobs:
        for row in compare(arguments, workers, size):
            if arguments.json:
                print(json.dumps(row), flush=True)
                continue
            limit = "" if row["limit_ratio"] is None else f"   {row['limit_ratio']:.2f} of the memory limit"
            print(f"{workers} workers {row['bytes']:>10} B  {row['name']:<27} {row['p50_us']:>10,.0f} us  {row['p99_us']:>10,.0f} us"
                  f"   {row['times_muster_local']:6.2f} x {LOCAL}{limit}", flush=True)
        if not arguments.json:
            print()


if __name__ == "__main__":
    main()
