"""Trains one of several models for a number of steps: alone, with DDP over gloo, or with muster.torch.

    own_model.py plain|ddp|muster MODEL BATCH STEPS server|program

Every step has the same samples, so the losses of the three are the same up to rounding. The process of rank 0 prints a
line of JSON: the loss of each step (muster: see its metrics.jsonl), and the seconds of all steps but the first WARM_UP
ones.
"""
import json
import os
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

WARM_UP = 3


class Transformer(nn.Module):
    """About 10 million parameters. A causal language model of 64 symbols."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(256, 384)
        layer = nn.TransformerEncoderLayer(384, 6, 1536, 0.0, F.gelu, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
        self.read = nn.Linear(384, 256)
        self.register_buffer("mask", torch.full((64, 64), float("-inf")).triu(1), persistent=False)

    def forward(self, text):
        return self.read(self.layers(self.embed(text), self.mask, is_causal=True)).mean(1)


def resnet18():
    import torchvision
    model = torchvision.models.resnet18(num_classes=10)
    model.conv1 = nn.Conv2d(3, 64, 3, padding=1, bias=False)
    model.maxpool = nn.Identity()
    return model


def mlp():
    """100 million parameters."""
    layers = []
    for _ in range(4):
        layers += [nn.Linear(5000, 5000), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(5000, 10))


MODELS = {
    "mnist": (lambda: nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(64 * 12 * 12, 128), nn.ReLU(), nn.Linear(128, 10)), (1, 28, 28)),
    "resnet18": (resnet18, (3, 32, 32)),
    "transformer": (Transformer, (64,)),
    "mlp": (mlp, (5000,)),
}


def main():
    mode, name, batch, steps = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    make, shape = MODELS[name]
    torch.manual_seed(1)
    model = make()
    x = torch.randint(0, 256, (batch, *shape)) if name == "transformer" else torch.randn(batch, *shape)
    y = torch.randint(0, 10, (batch,))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    losses, times = [], []

    def end_step():
        times.append(time.perf_counter())

    if mode == "muster":
        import muster.torch
        job = muster.torch.Job()
        job.prepare(model, optimizer, update=sys.argv[5])
        for step in job.steps((x, y)):
            for images, labels in step:
                loss = F.cross_entropy(model(images), labels)
                step.backward(loss)
            optimizer.step()
            end_step()
        rank = job.rank
    else:
        rank, world = 0, 1
        wrapped = model
        if mode == "ddp":
            torch.distributed.init_process_group("gloo")
            rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
            torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // world))
            wrapped = nn.parallel.DistributedDataParallel(model)
        share = batch // world
        x, y = x[rank * share:][:share], y[rank * share:][:share]
        for _ in range(steps):
            loss = F.cross_entropy(wrapped(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            end_step()
            losses.append(loss.detach())
        losses = torch.stack(losses) / world
        if mode == "ddp":
            torch.distributed.all_reduce(losses)
        losses = losses.tolist()
    if rank == 0:
        print(json.dumps({"losses": losses, "seconds": times[-1] - times[WARM_UP - 1]}), flush=True)
    if mode == "ddp":
        torch.distributed.destroy_process_group()


main()
