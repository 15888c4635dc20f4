"""Trains torchvision's ResNet-18 on CIFAR-10, with random crops and flips.

    muster data get cifar10 data/cifar10
    muster launch --workers 2 -- python3 examples/pytorch_resnet18.py data/cifar10
"""

import pathlib
import sys

import numpy as np
import torch
import torch.nn.functional as F
import torchvision

from muster.torch import job

EPOCHS = 15
MEAN, STDDEV = (torch.tensor(one).view(3, 1, 1) for one in ([125.3, 123.0, 113.9], [63.0, 62.1, 66.7]))


class Cifar10(torch.utils.data.Dataset):
    """The binary version. Random numbers come from torch, whose generator is seeded for each slice."""

    def __init__(self, folder, files, augment):
        bytes_ = b"".join((pathlib.Path(folder) / name).read_bytes() for name in files)
        records = torch.tensor(np.frombuffer(bytes_, np.uint8).reshape(-1, 3073))
        self.labels = records[:, 0].long()
        self.images = records[:, 1:].view(-1, 3, 32, 32)
        self.augment = augment

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image = (self.images[index].float() - MEAN) / STDDEV
        if self.augment:
            top, left, flip = (int(torch.randint(limit, ())) for limit in (9, 9, 2))
            image = F.pad(image, (4, 4, 4, 4))[:, top:top + 32, left:left + 32]
            image = image.flip(2) if flip else image
        return image, self.labels[index]


if len(sys.argv) != 2:
    sys.exit("usage: muster launch --workers 2 -- python3 examples/pytorch_resnet18.py DIR")
folder = sys.argv[1]
if (pathlib.Path(folder) / "cifar-10-batches-bin").exists():
    folder += "/cifar-10-batches-bin"
train_set = Cifar10(folder, [f"data_batch_{i}.bin" for i in range(1, 6)], augment=True)
test_set = Cifar10(folder, ["test_batch.bin"], augment=False)
model = torchvision.models.resnet18(num_classes=10)
model.conv1 = torch.nn.Conv2d(3, 64, 3, padding=1, bias=False)  # the images are small
model.maxpool = torch.nn.Identity()
model.to(job.device, memory_format=torch.channels_last)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)
loader = torch.utils.data.DataLoader(train_set, batch_size=512, shuffle=True, num_workers=1)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=EPOCHS * len(loader), cycle_momentum=False)
model, optimizer, loader, scheduler = job.prepare(model, optimizer, loader, scheduler)


def evaluate(images, labels):
    logits = model(images.contiguous(memory_format=torch.channels_last))
    return {"loss": F.cross_entropy(logits, labels), "accuracy": (logits.argmax(1) == labels).float().mean()}


job.evaluation(test_set, evaluate)  # after every epoch, by all processes together
for epoch in job.epochs(EPOCHS):
    for images, labels in loader:
        optimizer.zero_grad()
        with torch.autocast(job.device.type, torch.bfloat16):
            logits = model(images.contiguous(memory_format=torch.channels_last))
        F.cross_entropy(logits.float(), labels).backward()
        optimizer.step()
        scheduler.step()
