#!/usr/bin/python3
"""PyTorch on one GPU: a network of configs/models, channels-last, synthetic data on the GPU, SGD with momentum.
Prints images per second with PyTorch's best settings (cudnn.benchmark, a fused optimizer, no gradients that are
set to zero), then with its default ones, each the median of several repetitions. Needs PyTorch with CUDA, except
with --device cpu, which only shows that the program works. With --muster CONFIG it trains as a program of that
job, with the best settings, and prints one number.

    bench/peers/one_card.py [--model tutorial] [--batch 128] [--precision FP32|TF32|BF16|FP16]
                            [--seconds 5] [--repeat 3] [--device cuda] [--muster CONFIG]
"""
import argparse
import statistics
import time

import torch
import torch.nn.functional as functional

from models import MODELS


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="tutorial", choices=sorted(MODELS))
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--precision", default="FP32", choices=["FP32", "TF32", "BF16", "FP16"])
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--muster", metavar="CONFIG")
    arguments = parser.parse_args()

    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = arguments.precision == "TF32"
    torch.backends.cudnn.allow_tf32 = arguments.precision == "TF32"
    if arguments.muster:
        print(round(in_a_job(arguments)))
        return
    print(round(images_per_second(arguments, best=True)), round(images_per_second(arguments, best=False)))


def make(arguments):
    make_network, (height, width, channels), classes = MODELS[arguments.model]
    network = make_network().to(arguments.device, memory_format=torch.channels_last)
    images = torch.randn(arguments.batch, channels, height, width, device=arguments.device)
    labels = torch.randint(0, classes, (arguments.batch,), device=arguments.device)
    return network, images.to(memory_format=torch.channels_last), labels


def loss_of(arguments, network, images, labels):
    half = {"BF16": torch.bfloat16, "FP16": torch.float16}.get(arguments.precision)
    with torch.autocast(arguments.device, dtype=half, enabled=half is not None):
        return functional.cross_entropy(network(images), labels)


def images_per_second(arguments, best):
    torch.backends.cudnn.benchmark = best
    network, images, labels = make(arguments)
    optimizer = torch.optim.SGD(network.parameters(), 1e-3, momentum=0.9, fused=best or None)
    scaler = torch.amp.GradScaler(arguments.device, enabled=arguments.precision == "FP16")

    def seconds_for(count):
        begin = time.perf_counter()
        for _ in range(count):
            optimizer.zero_grad()
            loss = loss_of(arguments, network, images, labels)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        assert torch.isfinite(loss)  # waits for the GPU
        return time.perf_counter() - begin

    seconds_for(5)
    count = max(5, int(arguments.seconds / (seconds_for(5) / 5)))
    return statistics.median(arguments.batch * count / seconds_for(count) for _ in range(arguments.repeat))


def in_a_job(arguments):
    """The config gives one slice of --batch samples per step. The first quarter of the steps is not timed."""
    import muster.torch
    torch.backends.cudnn.benchmark = True
    job = muster.torch.Job(arguments.muster)
    arguments.device = job.device.type
    network, images, labels = make(arguments)
    job.prepare(network, torch.optim.SGD(network.parameters(), 1e-3, momentum=0.9))
    samples = torch.zeros(16 * arguments.batch)  # the images are on the GPU already
    times = []
    for step in job.steps((samples,)):
        times.append(time.perf_counter())
        for _ in step:
            step.backward(loss_of(arguments, network, images, labels))
    quarter = len(times) // 4
    return statistics.median(arguments.batch * quarter / (times[(i + 1) * quarter] - times[i * quarter]) for i in (1, 2))


if __name__ == "__main__":
    main()
