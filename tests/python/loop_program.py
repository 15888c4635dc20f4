"""A plain PyTorch script with the changed lines of docs/OWN_MODEL.md, in many variants.

usage: loop_program.py MODE [CONFIG]
"""

import copy
import functools
import json
import os
import pathlib
import signal
import sys
import time
import warnings

import torch
import torch.nn.functional as F
from torch.utils.data import (DataLoader, DistributedSampler, IterableDataset, SubsetRandomSampler, TensorDataset,
                              WeightedRandomSampler)

import muster.torch

MODE = sys.argv[1] if len(sys.argv) > 1 else ""  # loop_test.py imports this file
FAKE_DEVICE = os.environ.get("MUSTER_TEST_DEVICE") == "fake" or MODE == "mixed" and os.environ.get("MUSTER_RANK") == "1"
if FAKE_DEVICE:
    import fake_device

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
    if MODE == "subset":
        options = {"batch_size": 32, "sampler": SubsetRandomSampler(range(8, 72))}
    if MODE == "weighted_sampler":
        options = {"batch_size": 32, "sampler": WeightedRandomSampler(torch.ones(96), 96)}
    if MODE == "distributed_sampler":
        options = {"batch_size": 32, "sampler": DistributedSampler(TensorDataset(x, y), 2, 0)}
    if MODE == "stream":
        return DataLoader(Stream(), batch_size=32)
    return DataLoader(TensorDataset(x, y), **options)


def make_optimizer(model):
    if MODE in ("own", "waits"):
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


def wait_for(name):
    while not (pathlib.Path(os.environ["MUSTER_TEST_RUN"]).parent / f"{name}-0").exists():
        time.sleep(0.01)


def join_late(job):
    """The second process of rank 1 joins while rank 0 computes the last slice of all, and begins after the end."""
    if job.rank == 1 and count("begins") > 0:
        wait_for("last")
        join = job._join

        def join_and_wait(loader):
            steps = join(loader)
            count("joined")
            wait_for("over")
            return steps

        job._join = join_and_wait


class Test:
    def __init__(self, model, x, y):
        self.model, self.x, self.y = model, x, y

    def __call__(self, epoch):
        count(f"test{epoch}")
        if MODE == "dies" and epoch == 1 and count("dies") == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        if MODE == "dies" and epoch == 2:
            time.sleep(3)  # longer than deadlines.step_s of this test
        if MODE == "waits" and epoch == 2 and count("waits") == 0:
            time.sleep(3)  # others wait meanwhile
        print(f"tests epoch {epoch}")
        self.model.eval()
        F.cross_entropy(self.model(self.x), self.y).backward()  # its own gradients
        assert next(self.model.parameters()).grad.norm() > 0
        with torch.no_grad():
            logits = self.model(self.x)
        return {"loss": F.cross_entropy(logits, self.y), "right": [int((logits.argmax(1) == self.y).sum())]}


def assign(value):
    global EPOCHS
    EPOCHS = value


def evaluate(model, x, y):
    logits = model(x)
    return {"loss": F.cross_entropy(logits, y), "right": (logits.argmax(1) == y).float().mean()}


def main():
    x, y = data({"drop_last": 100, "in_order": 104}.get(MODE, 96))
    torch.manual_seed(1)
    torch.set_deterministic_debug_mode("error")
    model = Model().eval()  # as those of some libraries are; train() comes with each epoch
    limits = {"clipped": 0.5, "own": 0.5, "waits": 0.5, "weights_in_two_phases": 1000}
    job = muster.torch.job if MODE == "script" else muster.torch.Job(*sys.argv[2:], clip_norm=limits.get(MODE))
    assert muster.torch.job is job
    if FAKE_DEVICE and not job.is_updater:
        job.device = fake_device.DEVICE
    model.to(job.device)
    optimizer = make_optimizer(model)
    per_step = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, 1.0, 8)
    if MODE == "cycles":
        per_step = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=EPOCHS * 3)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)
    wrapped = torch.nn.DataParallel(model) if MODE == "parallel" else model
    given = [wrapped, optimizer, make_loader(x, y), per_step, plateau, DataLoader(TensorDataset(x, y), batch_size=10)]
    if MODE == "two_models":
        given[1] = Model()
    if MODE == "late":
        join_late(job)
    wrapped, optimizer, loader, per_step, plateau, test_loader = job.prepare(*given)
    assert test_loader is given[-1]
    test = Test(model, x.to(job.device), y.to(job.device))
    average = torch.optim.swa_utils.AveragedModel(model) if MODE == "averages" else None
    values = []
    seen = []
    for epoch in job.epochs(EPOCHS):
        model.train()
        if MODE == "not_returned":
            model(next(iter(given[2]))[0])
        for number, (a, b) in loader.enumerate() if MODE != "no_batches" else []:
            assert number == loader.step
            optimizer.zero_grad()
            if MODE in ("in_order", "subset") and epoch == 0:
                seen += [int((x == row).all(1).nonzero()) for row in a]
            if MODE == "own_numbers":
                a = a + torch.randn(a.shape, generator=NUMBERS)
            logits = wrapped(a)
            loss = F.cross_entropy(logits, b)
            if MODE == "last":
                job.backward(0.5 * loss, last=False)
                loss = 0.5 * F.cross_entropy(wrapped(a), b)
            weight = int((b > 0).sum()) if MODE.startswith("weights") else None
            if weight is not None:
                loss = F.cross_entropy(logits, torch.where(b > 0, b, -100))
            if MODE == "sum":
                loss = loss + F.cross_entropy(logits, b, reduction="sum")
            if MODE == "masked":
                loss = F.cross_entropy(logits[b > 0], b[b > 0])
            if MODE == "ignores":
                loss = 0.5 * F.cross_entropy(logits, b, ignore_index=0).double()
            if MODE == "warns":  # as torch does on a GPU
                warnings.warn("index_add_cuda_ does not have a deterministic implementation, but you set")
            if MODE == "autograd":
                torch.autograd.backward([loss])
            if MODE in ("script", "two_losses"):
                loss.backward()
            if MODE != "script":
                job.backward(loss, weight=weight, accuracy=(logits.argmax(1) == b).float().mean())
            if MODE == "clip":
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            if MODE != "no_step" and not (MODE == "accumulates" and epoch == 1):
                optimizer.step()
            if MODE == "steps_twice":
                optimizer.step()
            if MODE == "zeroes":
                optimizer.zero_grad()
                model.zero_grad()
            if MODE != "sometimes" or loader.step % 2 == 0:
                per_step.step()
            if MODE == "arguments":
                per_step.step(loader.step)
            if MODE == "once_in_body":
                job.once(test, 0)
            if MODE == "saves_in_body":
                torch.save(model.state_dict(), "last.pt")
            if MODE == "own_average":
                average = [one.detach().clone() for one in model.parameters()]
            if MODE == "calls_again":
                model(a)
            if MODE == "leaves" and epoch == 1:
                break
            if MODE == "averages":
                average.update_parameters(model)
            if MODE == "nested":
                next(iter(loader))
            if MODE == "late" and job.rank == 1 and epoch == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            if MODE == "late" and epoch == EPOCHS - 1 and loader.step == 2 and count("slices") == 3:
                count("last")
                wait_for("joined")
            time.sleep(0.1 if MODE == "slow" else 0)
        if MODE == "no_batches":
            continue
        if MODE == "peeks":
            model(x)
        if MODE == "copies":
            dict(model.state_dict())["0.weight"].clone()
        assert sum(one.numel() for one in model.parameters()) in (212, 244)
        if MODE == "norms":
            print([one.norm() for one in model.parameters()])
        if MODE == "clones":
            copy.deepcopy(model)
        if MODE == "assigns":
            job.once(assign, 1)
        if MODE == "object":
            job.once(object)
        result = job.once(test, int(epoch))
        plateau.step(result["loss"])
        shared = job.evaluate(test_loader, functools.partial(evaluate, model))
        assert abs(shared["loss"] - result["loss"]) < 1e-6, shared
        assert round(len(x) * shared["right"]) == result["right"][0], shared
        means = [epoch.loss] + ([] if MODE == "script" else [epoch.mean("accuracy")])
        values.append([int(epoch), means, result, shared, torch.rand(()).item(),
                       optimizer.param_groups[0]["lr"], *per_step.get_last_lr()])
        save = torch.save if MODE == "script" else job.save
        save({"model": model.state_dict(), "rate": per_step.state_dict(), "epoch": epoch}, "last.pt")
        print("epoch", int(epoch), "is over")
        if MODE == "stops_alone" and epoch == 1 and job.rank == 1:
            job.stop()
        if MODE == "saves_alone" and job.rank == 1:
            torch.save(model.state_dict(), "other.pt")
        if MODE == "stops" and epoch == 2:
            job.stop("enough")
            break
        if MODE == "leaves_epochs":
            break
    if MODE == "leaves_epochs":
        model(x)
    if MODE == "twice":
        list(job.epochs(EPOCHS))
    if MODE == "more":
        list(loader)
    if job.rank == 0:
        saved = torch.load("last.pt", weights_only=True)
        print("saved", float(sum(one.double().sum() for one in saved["model"].values())))
    if MODE == "late":
        count("over")
    print("values", json.dumps(values))
    print("seen", list(dict.fromkeys(seen)), "steps", len(loader))  # the first slice comes twice


NUMBERS = torch.Generator().manual_seed(3)

if __name__ == "__main__":
    main()
