"""A plain PyTorch script with the changed lines of docs/OWN_MODEL.md, in many variants. usage: loop_program.py MODE [CONFIG]"""

import json
import os
import pathlib
import signal
import sys
import time

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, TensorDataset, WeightedRandomSampler

import muster.torch

MODE = sys.argv[1] if len(sys.argv) > 1 else ""  # loop_test.py imports this file
EPOCHS = 5


def data(count=96):
    generator = torch.Generator().manual_seed(7)
    labels = torch.randint(0, 4, (count,), generator=generator)
    return torch.randn(count, 8, generator=generator) + labels.view(-1, 1), labels


class Stream(IterableDataset):
    def __iter__(self):
        return iter(zip(*data()))


class Model(torch.nn.Sequential):
    def __init__(self):
        between = [torch.nn.BatchNorm1d(16), torch.nn.ReLU(), torch.nn.Dropout(0.2)]
        if MODE.startswith("weights"):  # a plain loop has no slices, and other random numbers
            between = [torch.nn.ReLU()]
        super().__init__(torch.nn.Linear(8, 16), *between, torch.nn.Linear(16, 4))
        self.calls = 0

    def forward(self, x):
        if MODE == "counts" and self.training:  # a state that no buffer shows
            self.calls += 1
            return super().forward(x) * (1 + 0.01 * self.calls)
        return super().forward(x)


def make_loader(x, y):
    options = {"batch_size": 32, "shuffle": True}
    if MODE == "drop_last":
        options["drop_last"] = True
    if MODE == "in_order":
        options["shuffle"] = False
    if MODE == "weighted_sampler":
        options = {"batch_size": 32, "sampler": WeightedRandomSampler(torch.ones(96), 96)}
    if MODE == "distributed_sampler":
        options = {"batch_size": 32, "sampler": DistributedSampler(TensorDataset(x, y), 2, 0)}
    if MODE == "stream":
        return DataLoader(Stream(), batch_size=32)
    return DataLoader(TensorDataset(x, y), **options)


def make_optimizer(model):
    if MODE == "own":
        return torch.optim.Adadelta(model.parameters(), lr=0.5)
    if MODE == "lbfgs":
        return torch.optim.LBFGS(model.parameters())
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def count(name):
    """How often the processes of this run have asked for this name."""
    for number in range(1000):
        try:
            open(pathlib.Path(os.environ["MUSTER_TEST_RUN"]).parent / f"{name}-{number}", "x").close()
            return number
        except FileExistsError:
            pass
    raise AssertionError(name)


class Test:
    def __init__(self, model, x, y):
        self.model, self.x, self.y = model, x, y

    def __call__(self, epoch):
        count(f"test{epoch}")
        if MODE == "dies" and epoch == 1 and count("dies") == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        if MODE == "dies" and epoch == 2:
            time.sleep(3)  # longer than deadlines.step_s of this test
        print(f"tests epoch {epoch}")
        self.model.eval()
        with torch.no_grad():
            logits = self.model(self.x)
        return {"loss": F.cross_entropy(logits, self.y), "right": [int((logits.argmax(1) == self.y).sum())]}


def main():
    x, y = data({"drop_last": 100, "in_order": 104}.get(MODE, 96))
    torch.manual_seed(1)
    torch.set_deterministic_debug_mode("error")
    model = Model().eval()  # as those of some libraries are; train() comes with each epoch
    limits = {"clipped": 0.5, "own": 0.5, "weights_in_two_phases": 1000}
    job = muster.torch.Job(*sys.argv[2:], clip_norm=limits.get(MODE))
    optimizer = make_optimizer(model)
    per_step = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, 1.0, 8)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)
    wrapped = torch.nn.DataParallel(model) if MODE == "parallel" else model
    given = [wrapped, optimizer, make_loader(x, y), per_step, plateau, DataLoader(TensorDataset(x, y))]
    if MODE == "two_models":
        given[1] = Model()
    wrapped, optimizer, loader, per_step, plateau, test_loader = job.prepare(*given)
    assert test_loader is given[-1]
    test = Test(model, x, y)
    values = []
    seen = []
    for epoch in job.epochs(EPOCHS):
        model.train()
        for a, b in loader if MODE != "no_batches" else []:
            optimizer.zero_grad()
            if MODE == "in_order" and epoch == 0:
                seen += [int((x == row).all(1).nonzero()) for row in a]
            if MODE == "own_numbers":
                a = a + torch.randn(a.shape, generator=NUMBERS)
            logits = wrapped(a)
            loss = F.cross_entropy(logits, b)
            if MODE == "backward":
                loss.backward()
            if MODE == "last":
                job.backward(0.5 * loss, last=False)
                loss = 0.5 * F.cross_entropy(wrapped(a), b)
            weight = int((b > 0).sum()) if MODE.startswith("weights") else None
            if weight is not None:
                loss = F.cross_entropy(logits, torch.where(b > 0, b, -100))
            job.backward(loss, weight=weight, accuracy=(logits.argmax(1) == b).float().mean())
            if MODE == "clip":
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            if MODE != "no_step" and not (MODE == "accumulates" and epoch == 1):
                optimizer.step()
            if MODE == "steps_twice":
                optimizer.step()
            if MODE == "zeroes":
                optimizer.zero_grad()
            if MODE != "sometimes" or loader.step % 2 == 0:
                per_step.step()
            if MODE == "arguments":
                per_step.step(loader.step)
            if MODE == "once_in_body":
                job.once(test, 0)
            if MODE == "leaves" and epoch == 1:
                break
            if MODE == "averages":
                torch.optim.swa_utils.AveragedModel(model).update_parameters(model)
            if MODE == "nested":
                next(iter(loader))
            time.sleep(0.1 if MODE == "slow" else 0)
        if MODE == "no_batches":
            continue
        if MODE == "peeks":
            model(x)
        if MODE == "copies":
            dict(model.state_dict())["0.weight"].clone()
        if MODE == "object":
            job.once(object)
        result = job.once(test, int(epoch))
        plateau.step(result["loss"])
        values.append([int(epoch), epoch.loss, epoch.mean("accuracy"), result, torch.rand(()).item(),
                       optimizer.param_groups[0]["lr"], *per_step.get_last_lr()])
        job.save({"model": model.state_dict(), "rate": per_step.state_dict(), "epoch": epoch}, "last.pt")
        print("epoch", int(epoch), "is over")
        if MODE == "disagrees" and epoch == 1 and job.rank == 1:
            job.stop()
        if MODE == "stops" and epoch == 2:
            job.stop("enough")
            break
    if MODE == "more":
        list(loader)
    if job.rank == 0:
        saved = torch.load("last.pt", weights_only=True)
        print("saved", float(sum(one.double().sum() for one in saved["model"].values())))
    print("values", json.dumps(values))
    print("seen", list(dict.fromkeys(seen)), "steps", len(loader))  # the first slice comes twice


NUMBERS = torch.Generator().manual_seed(3)

if __name__ == "__main__":
    main()
