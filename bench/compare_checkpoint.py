#!/usr/bin/env python3
"""Checkpoints against torch.save, torch.load and torch.distributed.checkpoint: the same state, in turn.

    bench/compare_checkpoint.py --python VENV/bin/python [--dir /dev/shm] [--size 100000000] [--rounds 5]

The state is weights of --size bytes and momentum of as many, in ten tensors each. Every file is synced.
Prints the medians, in ms.
"""
import argparse
import json
import os
import statistics
import subprocess

PEER = """
import json, os, shutil, sys, time, torch
import torch.distributed.checkpoint as dcp
folder, size = sys.argv[1], int(sys.argv[2])
state = {f"{kind}.{i}": torch.arange(size // 40, dtype=torch.float32) % 9973
         for kind in ("weights", "momentum") for i in range(10)}
def sync(path):
    fd = os.open(path, os.O_RDONLY); os.fsync(fd); os.close(fd)
def timed(work):
    begin = time.perf_counter(); work(); return 1e3 * (time.perf_counter() - begin)
def save():
    torch.save(state, folder + "/t.pt"); sync(folder + "/t.pt")
def load():
    loaded = torch.load(folder + "/t.pt")
    for key in state: fresh[key].copy_(loaded[key])
def dcp_save():
    dcp.save(state, checkpoint_id=folder + "/dcp")
    for name in os.listdir(folder + "/dcp"): sync(folder + "/dcp/" + name)
fresh = {key: torch.zeros_like(value) for key, value in state.items()}
result = {"save": timed(save), "load": timed(load)}
result["dcp save"] = timed(dcp_save)
result["dcp load"] = timed(lambda: dcp.load(fresh, checkpoint_id=folder + "/dcp"))
assert all(torch.equal(fresh[key], state[key]) for key in state)
print(json.dumps(result))
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    default = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../build/release/bin")
    parser.add_argument("--bin", default=os.path.normpath(default))
    parser.add_argument("--python", required=True, help="one that has PyTorch")
    parser.add_argument("--dir", default="/dev/shm")
    parser.add_argument("--size", type=int, default=100_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    folder = f"{arguments.dir}/compare_checkpoint-{os.getpid()}"
    results = {}
    for _ in range(arguments.rounds):
        ours = json.loads(subprocess.check_output(
            [f"{arguments.bin}/checkpoint_bench", "--json", "--rounds", "1", "--dir", arguments.dir,
             "--size", str(arguments.size)]))
        os.makedirs(folder)
        theirs = json.loads(subprocess.check_output(
            [arguments.python, "-W", "ignore", "-c", PEER, folder, str(arguments.size)],
            stderr=subprocess.DEVNULL))
        subprocess.run(["rm", "-r", folder], check=True)
        for name, value in [("muster write", ours["write_ms"]), ("muster read", ours["read_ms"]),
                            *((f"torch {key}", value) for key, value in theirs.items())]:
            results.setdefault(name, []).append(value)
    for name, values in results.items():
        print(f"{name:<15} {statistics.median(values):8.1f} ms")


if __name__ == "__main__":
    main()
