#!/usr/bin/python3
"""PyTorch DistributedDataParallel over gloo with the networks of configs/models: 2 processes of 1 thread
each, channels-last, fp32, synthetic data in memory. Uses SGD with momentum, or Adam for multigpu_cnn, as in
that tutorial. Prints one JSON object: images per second of both processes together, the median of several
repetitions. With --rank it is one process of --processes, which may be on different hosts but share --folder; rank 0
writes the seconds of each of --steps steps to steps.json there. Needs PyTorch (Debian: python3-torch; 2 or newer for --compile, which also needs a C++ compiler).

    bench/peers/ddp.py [--model tutorial] [--batch 128] [--seconds 5] [--repeat 3] [--bf16] [--compile]
                       [--rank 0 --processes 4 --folder DIR --steps 20 --interface eth0]
"""
import argparse
import inspect
import json
import os
import statistics
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
import torch.nn.functional as functional
from torch.nn.parallel import DistributedDataParallel

from models import MODELS


# The name of the argument that controls whether running statistics are sent before each step. Newer
# releases warn about the old name.
SEND_BUFFERS = next(name for name in ("forward_sync_buffers", "broadcast_buffers")
                       if name in inspect.signature(DistributedDataParallel.__init__).parameters)


def make_optimizer(name, parameters):
    if name == "multigpu_cnn":
        return torch.optim.Adam(parameters, 1e-3)
    return torch.optim.SGD(parameters, 1e-3, momentum=0.9)


def finish(rank, model, folder, name, result, processes):
    # The processes must end with the same weights, which shows that they did not train separately.
    total = torch.stack([p.detach().double().sum() for p in model.parameters()]).sum()
    all_totals = [torch.zeros_like(total) for _ in range(processes)]
    dist.all_gather(all_totals, total)
    assert all(other == total for other in all_totals), "the replicas differ"
    if rank == 0:
        with open(os.path.join(folder, name), "w") as out:
            json.dump(result, out)
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # see allreduce_step.py


def train(rank, arguments, folder):
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    torch.manual_seed(rank)
    dist.init_process_group("gloo", init_method="file://" + os.path.join(folder, "store"), rank=rank,
                            world_size=arguments.processes)
    channels_last = torch.channels_last
    make, (height, width, channels), classes = MODELS[arguments.model]
    # Each process uses its own batch statistics, like each slice in Muster. Running statistics are
    # not broadcast before each step.
    model = DistributedDataParallel(make().to(memory_format=channels_last), **{SEND_BUFFERS: False})
    optimizer = make_optimizer(arguments.model, model.parameters())
    network = torch.compile(model) if arguments.compile else model
    images = torch.randn(arguments.batch, channels, height, width).to(memory_format=channels_last)
    labels = torch.randint(0, classes, (arguments.batch,))

    def steps(count):
        for _ in range(count):
            optimizer.zero_grad(set_to_none=False)
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=arguments.bf16):
                loss = functional.cross_entropy(network(images), labels)
            loss.backward()
            optimizer.step()

    if arguments.rank is not None:
        seconds = []
        for _ in range(arguments.steps):
            begin = time.perf_counter()
            steps(1)
            seconds.append(time.perf_counter() - begin)
        return finish(rank, model, folder, "steps.json", seconds, arguments.processes)
    steps(3)  # torch.compile runs in the first one
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
        rates.append(arguments.processes * arguments.batch * count / (time.perf_counter() - begin))
    finish(rank, model, folder, "rates.json", rates, arguments.processes)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", choices=list(MODELS), default="tutorial")
    parser.add_argument("--batch", type=int, default=128, help="per process")
    parser.add_argument("--seconds", type=float, default=5, help="duration of each repetition")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--bf16", action="store_true", help="forward pass and loss under torch.autocast")
    parser.add_argument("--compile", action="store_true", help="run the network with torch.compile")
    parser.add_argument("--rank", type=int, help="of one process on some host")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--folder", help="shared by all processes")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--interface", default="lo")
    arguments = parser.parse_args()
    if arguments.compile and not hasattr(torch, "compile"):
        parser.error(f"--compile: PyTorch {torch.__version__} has no torch.compile; use 2 or newer")
    os.environ.setdefault("GLOO_SOCKET_IFNAME", arguments.interface)
    os.environ["OMP_NUM_THREADS"] = "1"
    if arguments.rank is not None:
        return train(arguments.rank, arguments, arguments.folder)
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(train, (arguments, folder), nprocs=arguments.processes)
        with open(os.path.join(folder, "rates.json")) as rates_file:
            rates = json.load(rates_file)
    print(json.dumps({"images_per_second": statistics.median(rates), "all": rates,
                      "torch": torch.__version__}))


if __name__ == "__main__":
    main()
