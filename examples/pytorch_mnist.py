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
from torch.utils.data import DataLoader, TensorDataset

from muster.torch import job

EPOCHS = 2


def read(folder, name, header):
    """A file in MNIST's format, compressed or not."""
    path = pathlib.Path(folder) / name
    data = path.read_bytes() if path.exists() else gzip.open(f"{path}.gz").read()
    return np.frombuffer(data, np.uint8, offset=header)


def load(folder, part):
    images = torch.tensor(read(folder, f"{part}-images-idx3-ubyte", 16)).view(-1, 1, 28, 28)
    labels = torch.tensor(read(folder, f"{part}-labels-idx1-ubyte", 8)).long()
    return (images.float() / 255 - 0.1307) / 0.3081, labels


def count_right(logits, labels):
    return (logits.argmax(1) == labels.to(logits.device)).sum()


if len(sys.argv) != 2:
    sys.exit("usage: muster launch --workers 2 -- python3 examples/pytorch_mnist.py DIR")
train_set, test_set = (load(sys.argv[1], part) for part in ("train", "t10k"))
model = nn.Sequential(
    nn.Conv2d(1, 32, 3), nn.ReLU(),
    nn.Conv2d(32, 64, 3), nn.ReLU(),
    nn.MaxPool2d(2), nn.Dropout(0.25), nn.Flatten(),
    nn.Linear(64 * 12 * 12, 128), nn.ReLU(), nn.Dropout(0.5),
    nn.Linear(128, 10))
model.to(job.device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
train_loader = DataLoader(TensorDataset(*train_set), batch_size=128, shuffle=True)
test_loader = DataLoader(TensorDataset(*test_set), batch_size=1000)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * len(train_loader))
model, optimizer, train_loader, scheduler = job.prepare(model, optimizer, train_loader, scheduler)


def test():
    model.eval()
    with torch.no_grad():
        return sum(float(count_right(model(x.to(job.device)), y)) for x, y in test_loader) / len(test_loader.dataset)


best = 0.0
for epoch in job.epochs(EPOCHS):
    for images, labels in train_loader:
        optimizer.zero_grad()
        logits = model(images)
        job.backward(F.cross_entropy(logits, labels), accuracy=count_right(logits, labels) / len(labels))
        optimizer.step()
        scheduler.step()
    accuracy = job.once(test)
    job.print(f"epoch {epoch + 1}: loss {epoch.loss:.4f}, test accuracy {accuracy:.4f}")
    if accuracy > best:
        best = accuracy
        torch.save(model.state_dict(), "mnist.pt")
