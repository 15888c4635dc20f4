#!/usr/bin/env python3
"""The recipe of configs/cifar10_fast.txtpb in PyTorch, channels-last, with the images in memory: one process with 2
threads or, with --processes 2, DistributedDataParallel over gloo with 1 thread each. Prints the test accuracy after
each epoch, of the average of the weights, and at the end one JSON object with them and the seconds that training took.
Batch norms take their statistics over a process's part of the batch. Needs PyTorch 2.

    bench/peers/cifar10_fast.py DATA WHITEN.safetensors [--seed 1] [--epochs 12] [--processes 1] [--bf16]

DATA has the files of CIFAR-10's binary version. `muster data whiten` writes the second argument.
"""
import argparse
import json
import os
import struct
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
import torch.nn.functional as functional
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ddp import SEND_BUFFERS

BATCH, IMAGES = 1024, 50_000
STEPS = -(-IMAGES // BATCH)
MEAN, STDDEV = (125.3, 123.0, 113.9), (63.0, 62.1, 66.7)
RATE, LAST_RATE, MOMENTUM, DECAY, AVERAGE = 1.5, 0.1, 0.85, 1.33e-3, 0.95
WARM_UP = 0.23  # of the images


def read_set(folder, names):
    raw = b"".join(open(os.path.join(folder, name), "rb").read() for name in names)
    records = torch.frombuffer(bytearray(raw), dtype=torch.uint8).view(-1, 3073)
    images = records[:, 1:].view(-1, 3, 32, 32).float()
    images = (images - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STDDEV).view(3, 1, 1)
    return images, records[:, 0].long()


def read_filters(path):
    """Reads the one tensor of a safetensors file."""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        values = torch.frombuffer(bytearray(file.read()), dtype=torch.float32)
    (tensor,) = (value for name, value in header.items() if name != "__metadata__")
    begin, end = (at // 4 for at in tensor["data_offsets"])
    return values[begin:end].view(tensor["shape"])


def convolution(inputs, outputs):
    layer = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
    nn.init.dirac_(layer.weight[:inputs])
    return layer


def norm(channels):
    layer = nn.BatchNorm2d(channels, eps=1e-12, momentum=0.4)
    layer.weight.requires_grad = False
    return layer


def block(inputs, outputs):
    return nn.Sequential(convolution(inputs, outputs), nn.MaxPool2d(2), norm(outputs), nn.GELU(),
                         convolution(outputs, outputs), norm(outputs), nn.GELU())


def network(filters):
    whiten = nn.Conv2d(3, 24, 2)
    whiten.weight.data.copy_(filters)
    whiten.weight.requires_grad = False
    whiten.bias.data.zero_()
    classes = nn.Linear(256, 10, bias=False)
    nn.init.trunc_normal_(classes.weight, std=0.036, a=-0.072, b=0.072)
    return nn.Sequential(whiten, nn.GELU(), block(24, 64), block(64, 256), block(256, 256), nn.MaxPool2d(3),
                         nn.Flatten(), classes)


def rate_at(samples, total):
    """From 0.2 to 1 times RATE, then down to LAST_RATE."""
    done = samples / total
    if done < WARM_UP:
        return RATE * (0.2 + 0.8 * done / WARM_UP)
    return LAST_RATE + (RATE - LAST_RATE) * (1 - done) / (1 - WARM_UP)


class Augmenter:
    """Crops of images padded by reflection, and flips that alternate between epochs."""

    def __init__(self, images, seed):
        self.padded = functional.pad(images, (2, 2, 2, 2), mode="reflect")
        self.random = torch.Generator().manual_seed(seed)
        self.flipped = torch.rand(len(images), generator=self.random) < 0.5

    def order(self):
        return torch.randperm(len(self.padded), generator=self.random)

    def batch(self, chosen, epoch, generator):
        out = torch.empty(len(chosen), 3, 32, 32)
        shifts = torch.randint(0, 25, (len(chosen),), generator=generator)
        for shift in range(25):
            top, left = divmod(shift, 5)
            at = (shifts == shift).nonzero()[:, 0]
            out[at] = self.padded[chosen[at], :, top:top + 32, left:left + 32]
        flipped = self.flipped[chosen] ^ bool(epoch % 2)
        out[flipped] = out[flipped].flip(-1)
        return out.contiguous(memory_format=torch.channels_last)


def accuracy(model, images, labels, bf16):
    model.eval()
    right = 0
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
        for some, expected in zip(images.split(500), labels.split(500)):
            some = some.contiguous(memory_format=torch.channels_last)
            right += int((model(some).argmax(1) == expected).sum())
    model.train()
    return right / len(labels)


def train(rank, arguments, folder):
    processes = arguments.processes
    torch.set_num_threads(2 // processes)
    torch.set_flush_denormal(True)
    torch.manual_seed(arguments.seed)
    dist.init_process_group("gloo", init_method="file://" + os.path.join(folder, "store"), rank=rank,
                            world_size=processes)
    images, labels = read_set(arguments.data, [f"data_batch_{i}.bin" for i in range(1, 6)])
    tested = read_set(arguments.data, ["test_batch.bin"])
    augmenter = Augmenter(images, arguments.seed)
    generator = torch.Generator().manual_seed(1000 * arguments.seed + rank)
    module = network(read_filters(arguments.whiten)).to(memory_format=torch.channels_last)
    average = torch.optim.swa_utils.AveragedModel(
        module, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(AVERAGE))
    model = DistributedDataParallel(module, **{SEND_BUFFERS: False}) if processes > 1 else module
    shifts = [m.bias for m in module.modules() if isinstance(m, nn.BatchNorm2d)]
    classes = module[-1].weight
    others = [p for p in module.parameters()
              if p.requires_grad and p is not classes and all(p is not shift for shift in shifts)]
    # The logits are not divided by 9: see configs/models/cifar10_fast.txtpb.
    groups = [{"params": others, "scale": 1, "weight_decay": DECAY},
              {"params": shifts, "scale": 64, "weight_decay": 2e-5},
              {"params": [classes], "scale": 0.0123, "weight_decay": 0.108}]
    classes.data.div_(9)
    optimizer = torch.optim.SGD(groups, RATE, momentum=MOMENTUM, nesterov=True)
    total, accuracies, seconds = arguments.epochs * IMAGES, [], 0.0
    for epoch in range(arguments.epochs):
        dist.barrier()
        begin = time.perf_counter()
        order = augmenter.order()
        for step in range(STEPS):
            rate = rate_at(epoch * IMAGES + step * BATCH, total)
            for group in optimizer.param_groups:
                group["lr"] = rate * group["scale"]
            both = order[step * BATCH:(step + 1) * BATCH]
            chosen = both[rank * len(both) // processes:(rank + 1) * len(both) // processes]
            batch = augmenter.batch(chosen, epoch, generator)
            optimizer.zero_grad(set_to_none=False)
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=arguments.bf16):
                loss = functional.cross_entropy(model(batch), labels[chosen], label_smoothing=0.2)
            loss.backward()
            optimizer.step()
            average.update_parameters(module)
        dist.barrier()
        seconds += time.perf_counter() - begin
        if rank == 0:
            accuracies.append(accuracy(average.module, *tested, arguments.bf16))
            print(f"epoch {epoch + 1}: {100 * accuracies[-1]:.2f} %, {seconds:.0f} s", flush=True)
    if rank == 0:
        with open(os.path.join(folder, "result.json"), "w") as out:
            json.dump({"accuracies": accuracies, "seconds": seconds, "torch": torch.__version__}, out)
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # see allreduce_step.py


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("whiten")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--processes", type=int, choices=(1, 2), default=1)
    parser.add_argument("--bf16", action="store_true", help="forward pass and loss under torch.autocast")
    arguments = parser.parse_args()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    os.environ["OMP_NUM_THREADS"] = str(2 // arguments.processes)
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(train, (arguments, folder), nprocs=arguments.processes)
        print(open(os.path.join(folder, "result.json")).read())


if __name__ == "__main__":
    main()
