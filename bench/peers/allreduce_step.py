#!/usr/bin/python3
"""PyTorch's equivalent of a round: all_reduce of the gradients over gloo, then the optimizer's step in every
process. There is no network and no backward pass: the gradients are constant. Prints one JSON object. Needs
PyTorch (Debian: python3-torch; 2 or newer for --bf16 and --compile).

    bench/peers/allreduce_step.py [--workers 2] [--size 104857600] [--optimizer MOMENTUM] [--seconds 3]
                                  [--bf16] [--compile]
"""
import argparse
import json
import math
import os
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing

RATE, MOMENTUM, ALPHA = 0.125, 0.5, 0.9
OPTIMIZERS = ["SGD", "MOMENTUM", "NESTEROV", "ADAM", "ADAMW", "RMSPROP"]


def make_optimizer(name, parameters):
    if name == "ADAM":
        return torch.optim.Adam(parameters, RATE)
    if name == "ADAMW":
        return torch.optim.AdamW(parameters, RATE)
    if name == "RMSPROP":
        return torch.optim.RMSprop(parameters, RATE, alpha=ALPHA)
    return torch.optim.SGD(parameters, RATE, momentum=0 if name == "SGD" else MOMENTUM, nesterov=name == "NESTEROV")


def first_step(name, gradient):
    """Returns the change of zero weights in the first step, ignoring the optimizer's epsilon."""
    if name in ("ADAM", "ADAMW"):
        return -RATE
    if name == "RMSPROP":
        return -RATE / math.sqrt(1 - ALPHA)
    return -RATE * gradient * (1 + MOMENTUM if name == "NESTEROV" else 1)


def work(rank, arguments, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + os.path.join(folder, "store"), rank=rank,
                            world_size=arguments.workers)
    weights = torch.nn.Parameter(torch.zeros(arguments.size // 4))
    weights.grad = torch.zeros_like(weights)
    optimizer = make_optimizer(arguments.optimizer, [weights])

    step = torch.compile(optimizer.step) if arguments.compile else optimizer.step

    def one_round():
        if arguments.bf16:  # like DDP's bf16_compress_hook
            rounded = weights.grad.to(torch.bfloat16)
            dist.all_reduce(rounded)
            weights.grad.copy_(rounded)
        else:
            dist.all_reduce(weights.grad)
        weights.grad.div_(arguments.workers)
        step()

    # Verify the first round: the mean of 1 ... K is (K + 1) / 2.
    weights.grad.fill_(rank + 1.0)
    one_round()
    expected = first_step(arguments.optimizer, (arguments.workers + 1) / 2)
    wrong = (weights / expected - 1).abs().max().item()
    assert wrong < 1e-6, wrong
    weights.grad.zero_()
    times = []
    for _ in range(3):
        one_round()
    begin = time.perf_counter()
    one_round()
    count = torch.tensor(max(10.0, min(4000.0, arguments.seconds / (time.perf_counter() - begin))))
    dist.broadcast(count, 0)
    for _ in range(int(count)):
        begin = time.perf_counter()
        one_round()
        times.append(time.perf_counter() - begin)
    if rank == 0:
        times.sort()
        print(json.dumps({
            "peer": "PyTorch %s gloo" % torch.__version__, "workers": arguments.workers, "bytes": arguments.size,
            "optimizer": arguments.optimizer, "rounds": len(times), "p50_us": times[len(times) // 2] * 1e6,
            "p99_us": times[len(times) * 99 // 100] * 1e6, "mean_us": sum(times) / len(times) * 1e6,
            "verified": True}), flush=True)
    dist.barrier()
    dist.destroy_process_group()
    # Gloo's threads outlive the group, and PyTorch sometimes aborts when it destroys them at exit.
    os._exit(0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--size", type=int, default=100 << 20, help="size of the weights in bytes")
    parser.add_argument("--optimizer", default="MOMENTUM", choices=OPTIMIZERS)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--bf16", action="store_true", help="send the gradients as bfloat16")
    parser.add_argument("--compile", action="store_true", help="run the optimizer with torch.compile")
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as scratch:
        arguments = parser.parse_args()
        if arguments.compile and not hasattr(torch, "compile"):
            parser.error(f"--compile: PyTorch {torch.__version__} has no torch.compile; use 2 or newer")
        multiprocessing.spawn(work, (arguments, scratch), nprocs=arguments.workers)
