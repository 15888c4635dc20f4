#!/usr/bin/env python3
"""Prints how fast each GPU reads the memory of each other one, in GB/s: the median of seven copies of 256 MiB, compared
with a copy inside the first GPU, which reads and writes."""

import statistics
import time

import torch


def rate(source, target):
    """Copies between two tensors, and checks what arrived."""
    seconds = []
    for _ in range(8):
        torch.cuda.synchronize(source.device)
        torch.cuda.synchronize(target.device)
        begin = time.perf_counter()
        target.copy_(source, non_blocking=True)
        torch.cuda.synchronize(source.device)
        torch.cuda.synchronize(target.device)
        seconds.append(time.perf_counter() - begin)
    if not torch.equal(source.cpu(), target.cpu()):
        raise SystemExit(f"a copy from {source.device} to {target.device} differs")
    return source.numel() * source.element_size() / statistics.median(seconds[1:]) / 1e9


def main():
    gpus = [torch.device("cuda", i) for i in range(torch.cuda.device_count())]
    buffers = [torch.full((64 << 20,), i + 1.0, device=gpu) for i, gpu in enumerate(gpus)]
    print("| from, to | GB/s | direct |\n|---|---|---|")
    print(f"| inside GPU 0 | {rate(buffers[0], torch.empty_like(buffers[0])):.0f} | |")
    for i, source in enumerate(buffers):
        for j, gpu in enumerate(gpus):
            if i != j:
                direct = "yes" if torch.cuda.can_device_access_peer(gpu, gpus[i]) else "no"
                print(f"| {i}, {j} | {rate(source, torch.empty_like(source, device=gpu)):.0f} | {direct} |", flush=True)


main()
