#!/usr/bin/python3
"""PyTorch DistributedDataParallel over gloo on the network of configs/cifar10.txtpb: 2 processes
of 1 thread each, channels-last, fp32, SGD with momentum, synthetic data that is already in memory.
Prints one JSON object: images per second of both processes together, the median of several
repetitions. Needs PyTorch (Debian: python3-torch).

    bench/peers/ddp.py [--no-lrn] [--batch 128] [--seconds 5] [--repeat 3]
"""
import argparse
import json
import os
import statistics
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
import torch.nn as nn
import torch.nn.functional as functional
from torch.nn.parallel import DistributedDataParallel


class Tutorial(nn.Module):
    """conv 5x5x64, pool 3/2, LRN, conv 5x5x64, LRN, pool 3/2, dense 384, 192, 10."""

    def __init__(self, lrn):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 5, padding=2)
        self.conv2 = nn.Conv2d(64, 64, 5, padding=2)
        # PyTorch divides alpha by the window.
        self.norm = nn.LocalResponseNorm(9, alpha=0.001, beta=0.75, k=1.0) if lrn else nn.Identity()
        self.local3 = nn.Linear(64 * 6 * 6, 384)
        self.local4 = nn.Linear(384, 192)
        self.linear = nn.Linear(192, 10)

    def forward(self, x):
        x = functional.relu(self.conv1(x))
        x = self.norm(functional.max_pool2d(x, 3, 2, ceil_mode=True))
        x = self.norm(functional.relu(self.conv2(x)))
        x = functional.max_pool2d(x, 3, 2, ceil_mode=True)
        x = functional.relu(self.local3(x.flatten(1)))
        return self.linear(functional.relu(self.local4(x)))


def train(rank, arguments, folder):
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    torch.manual_seed(rank)
    dist.init_process_group("gloo", init_method="file://" + os.path.join(folder, "store"), rank=rank, world_size=2)
    channels_last = torch.channels_last
    model = DistributedDataParallel(Tutorial(not arguments.no_lrn).to(memory_format=channels_last))
    optimizer = torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9)
    images = torch.randn(arguments.batch, 3, 24, 24).to(memory_format=channels_last)
    labels = torch.randint(0, 10, (arguments.batch,))

    def steps(count):
        for _ in range(count):
            optimizer.zero_grad(set_to_none=False)
            functional.cross_entropy(model(images), labels).backward()
            optimizer.step()

    steps(3)
    begin = time.perf_counter()
    steps(3)
    each = torch.tensor((time.perf_counter() - begin) / 3)
    dist.broadcast(each, 0)
    count = max(3, int(arguments.seconds / float(each)))
    rates = []
    for _ in range(arguments.repeat):
        dist.barrier()
        begin = time.perf_counter()
        steps(count)
        dist.barrier()
        rates.append(2 * arguments.batch * count / (time.perf_counter() - begin))
    # The processes must have ended with the same weights: it was one training, not two.
    total = torch.stack([p.detach().double().sum() for p in model.parameters()]).sum()
    both = [torch.zeros_like(total) for _ in range(2)]
    dist.all_gather(both, total)
    assert both[0] == both[1], "the replicas differ"
    if rank == 0:
        with open(os.path.join(folder, "rates.json"), "w") as out:
            json.dump(rates, out)
    dist.barrier()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--no-lrn", action="store_true")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(train, (arguments, folder), nprocs=2)
        with open(os.path.join(folder, "rates.json")) as rates_file:
            rates = json.load(rates_file)
    print(json.dumps({"images_per_second": statistics.median(rates), "all": rates,
                      "torch": torch.__version__}))


if __name__ == "__main__":
    main()
