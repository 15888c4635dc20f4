#!/usr/bin/python3
"""PyTorch on one GPU: a network of configs/models, channels-last, synthetic data on the GPU, the optimizer
of ddp.py. Prints images per second, the median of several repetitions. Needs PyTorch with CUDA, except with
--device cpu, which only shows that the program works.

    bench/peers/one_card.py [--model tutorial] [--batch 128] [--precision FP32|TF32|BF16]
                            [--seconds 5] [--repeat 3] [--device cuda]
"""
import argparse
import statistics
import time

import torch
import torch.nn.functional as functional

from ddp import make_optimizer
from models import MODELS


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="tutorial", choices=sorted(MODELS))
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--precision", default="FP32", choices=["FP32", "TF32", "BF16"])
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--device", default="cuda")
    arguments = parser.parse_args()

    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = arguments.precision == "TF32"
    torch.backends.cudnn.allow_tf32 = arguments.precision == "TF32"
    make, (height, width, channels), classes = MODELS[arguments.model]
    network = make().to(arguments.device, memory_format=torch.channels_last)
    optimizer = make_optimizer(arguments.model, network.parameters())
    images = torch.randn(arguments.batch, channels, height, width, device=arguments.device)
    images = images.to(memory_format=torch.channels_last)
    labels = torch.randint(0, classes, (arguments.batch,), device=arguments.device)

    def seconds_for(count):
        begin = time.perf_counter()
        for _ in range(count):
            optimizer.zero_grad(set_to_none=False)
            with torch.autocast(arguments.device, dtype=torch.bfloat16, enabled=arguments.precision == "BF16"):
                loss = functional.cross_entropy(network(images), labels)
            loss.backward()
            optimizer.step()
        assert torch.isfinite(loss)  # waits for the GPU
        return time.perf_counter() - begin

    seconds_for(5)
    count = max(5, int(arguments.seconds / (seconds_for(5) / 5)))
    print(round(statistics.median(arguments.batch * count / seconds_for(count) for _ in range(arguments.repeat))))


if __name__ == "__main__":
    main()
