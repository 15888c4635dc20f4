"""Trains a small convolutional network on MNIST.

    muster data get mnist data/mnist
    muster launch --workers 2 -- python3 examples/pytorch_mnist.py data/mnist
"""

import gzip
import pathlib
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import muster.torch


def read(folder, name, header):
    """A file in MNIST's format, compressed or not."""
    path = pathlib.Path(folder) / name
    data = path.read_bytes() if path.exists() else gzip.open(f"{path}.gz").read()
    return np.frombuffer(data, np.uint8, offset=header)


def load(folder, part):
    images = torch.tensor(read(folder, f"{part}-images-idx3-ubyte", 16)).view(-1, 1, 28, 28)
    labels = torch.tensor(read(folder, f"{part}-labels-idx1-ubyte", 8)).long()
    return (images.float() / 255 - 0.1307) / 0.3081, labels


def accuracy(logits, labels):
    return (logits.argmax(1) == labels).float().mean()


train_set, test_set = (load(sys.argv[1], part) for part in ("train", "t10k"))
torch.manual_seed(1)
model = nn.Sequential(
    nn.Conv2d(1, 32, 3), nn.ReLU(),
    nn.Conv2d(32, 64, 3), nn.ReLU(),
    nn.MaxPool2d(2), nn.Dropout(0.25), nn.Flatten(),
    nn.Linear(64 * 12 * 12, 128), nn.ReLU(), nn.Dropout(0.5),
    nn.Linear(128, 10))
job = muster.torch.Job(batch_size=128, epochs=2)
model.to(job.device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
job.prepare(model, optimizer)


def evaluate(images, labels):
    logits = model(images)
    return {"loss": F.cross_entropy(logits, labels), "accuracy": accuracy(logits, labels)}


job.evaluation(test_set, evaluate)
steps = job.steps(train_set)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, len(steps))
for step in steps:
    for images, labels in step:
        logits = model(images)
        step.backward(F.cross_entropy(logits, labels), accuracy=accuracy(logits, labels))
    optimizer.step()
    scheduler.step()
if job.rank == 0:
    torch.save(model.state_dict(), "mnist.pt")
