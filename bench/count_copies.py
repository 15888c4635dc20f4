#!/usr/bin/env python3
"""Counts the copies, bytes and waits of a step of ResNet-50 in muster.torch, on the fake device of the tests.

    PYTHONPATH=python:tests/python python3 bench/count_copies.py

The images are small, because only the parameters count. The estimate in milliseconds assumes PCIe 5 at 25 GB/s and
0.05 ms for each wait, in which the GPU idles: it is no measurement.
"""
import os
import sys

os.environ["MUSTER_ALONE"] = "1"
import fake_device  # noqa: E402
import torch  # noqa: E402
import torchvision  # noqa: E402
from muster.torch import job  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

STEPS = 3
LINK, WAIT = 25e9, 0.05e-3

job.device = fake_device.DEVICE
model = torchvision.models.resnet50().to(job.device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
loader = DataLoader(TensorDataset(torch.randn(4 * STEPS, 3, 64, 64), torch.randint(0, 10, (4 * STEPS,))), batch_size=4)
model, optimizer, loader = job.prepare(model, optimizer, loader)
counted = []
for epoch in job.epochs(1):
    for x, y in loader:
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        counted.append(dict(fake_device.counts))
slices = len(counted) // STEPS  # the first one comes twice
if not epoch.loss < 100:
    sys.exit(f"expected a loss below 100, got {epoch.loss}")
step = {name: counted[-1][name] - counted[-1 - slices][name] for name in counted[-1]}
print(f"a step of ResNet-50 in one process, {slices} slices: {step['to the device']} copies to the device, "
      f"{step['to the host']} to the host, {step['bytes'] / 1e6:.0f} MB, {step['waits']} waits")
print(f"estimate, if nothing hides them: {1e3 * (step['bytes'] / LINK + step['waits'] * WAIT):.1f} ms")
