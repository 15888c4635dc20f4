#!/usr/bin/python3
"""What PyTorch does in place of a round: all_reduce of the gradients over gloo, then the optimizer's
step in every process. No network, no backward pass: gradients that are ready. Prints one JSON
object. Needs PyTorch (Debian: python3-torch).

    bench/peers/allreduce_step.py [--workers 2] [--size 104857600] [--optimizer MOMENTUM] [--seconds 3]
"""
import argparse
import json
import os
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing

RATE, MOMENTUM = 0.125, 0.5


def make_optimizer(name, parameters):
    if name == "ADAM":
        return torch.optim.Adam(parameters, RATE)
    return torch.optim.SGD(parameters, RATE, momentum=MOMENTUM if name == "MOMENTUM" else 0)


def work(rank, arguments, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + os.path.join(folder, "store"), rank=rank,
                            world_size=arguments.workers)
    weights = torch.nn.Parameter(torch.zeros(arguments.size // 4))
    weights.grad = torch.zeros_like(weights)
    optimizer = make_optimizer(arguments.optimizer, [weights])

    def one_round():
        dist.all_reduce(weights.grad)
        weights.grad.div_(arguments.workers)
        optimizer.step()

    # The first round is checked: the mean of 1 ... K is (K + 1) / 2.
    weights.grad.fill_(rank + 1.0)
    one_round()
    if arguments.optimizer != "ADAM":
        expected = -RATE * (arguments.workers + 1) / 2
        assert float(weights[0]) == expected and float(weights[-1]) == expected, float(weights[0])
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
            "verified": arguments.optimizer != "ADAM"}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--size", type=int, default=100 << 20, help="bytes of weights")
    parser.add_argument("--optimizer", default="MOMENTUM", choices=["SGD", "MOMENTUM", "ADAM"])
    parser.add_argument("--seconds", type=float, default=3)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as scratch:
        arguments = parser.parse_args()
        multiprocessing.spawn(work, (arguments, scratch), nprocs=arguments.workers)
