"""A small torch training program with many variants, which torch_test.py starts.

usage: torch_program.py MODE[+MODE ...] [CONFIG]
"""

import multiprocessing
import os
import pathlib
import signal
import subprocess
import sys
import time
import types

import torch
import torch.nn.functional as F

import muster.torch

FAKE_DEVICE = os.environ.get("MUSTER_TEST_DEVICE") == "fake"
if FAKE_DEVICE:
    import fake_device

MODE = sys.argv[1] if len(sys.argv) > 1 else ""  # torch_test.py imports this file
MODES = MODE.split("+")
SAMPLES = 96


def tensors():
    generator = torch.Generator().manual_seed(7)
    labels = torch.randint(0, 4, (SAMPLES,), generator=generator)
    images = torch.randn(SAMPLES, 3, 8, 8, generator=generator) + labels.view(-1, 1, 1, 1)
    return images, labels


def is_first():
    """Whether no process of this run has asked before."""
    try:
        open(pathlib.Path(os.environ["MUSTER_TEST_RUN"]) / "asked", "x").close()
    except FileExistsError:
        return False
    return True


class Augmented(torch.utils.data.Dataset):
    """Random numbers of torch change each sample."""

    def __init__(self):
        self.images, self.labels = tensors()
        self.count = 0  # of samples that this process has loaded

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        self.count += 1
        if torch.utils.data.get_worker_info() is not None and self.count % 20 == 0:
            if MODE == "loader_killed" and is_first():
                os.kill(os.getpid(), signal.SIGKILL)
            if MODE == "loader_exits":
                os._exit(5)
        return self.images[index] + 0.1 * torch.randn(3, 8, 8), self.labels[index]


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, bias=False)  # a bias has no effect before a norm
        self.norm = torch.nn.BatchNorm2d(8)
        self.dropout = torch.nn.Dropout(0.2)
        self.dense = torch.nn.Linear(8 * 6 * 6, 4)
        if "sparse" in MODES:
            self.embedding = torch.nn.Embedding(4, 3, sparse=True)
        if "unused" in MODES or MODE == "frozen_all":
            self.spare = torch.nn.Linear(3, 3)
        if "tied" in MODES:
            self.second = torch.nn.Conv2d(3, 8, 3, bias=False)
            self.second.weight = self.conv.weight
        self.register_buffer("shift", torch.full((4,), 0.1))
        if MODE == "other_constant":
            self.shift += int(os.environ["MUSTER_RANK"])
        self.register_buffer("mask", torch.full((4,), float("-inf")))

    def forward(self, x):
        y = self.conv(x)
        if "tied" in MODES:
            y = y + self.second(x)
        y = self.dropout(F.relu(self.norm(y)))
        if MODE == "buffer":
            self.shift += 1
        if MODE == "buffer_anew":
            self.shift = self.shift + 1
        if MODE == "frozen_element":  # neither its version nor the compared elements show it
            self.conv.weight.data[0, 0, 0, 1] += 1
        if MODE == "frozen_all":
            self.spare.weight.data.mul_(0.9)
        return self.dense(y.flatten(1)) + self.shift


class SignDescent(torch.optim.Optimizer):
    """An optimizer that no library has. It replaces the parameters' memory."""

    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                self.state[p]["sum"] = self.state[p].get("sum", 0) + p.grad
                p.data = p.data - group["lr"] * self.state[p]["sum"].sign()


def make_optimizer(model):
    if MODE == "own_two":
        first = [p for n, p in model.named_parameters() if not n.startswith("dense")]
        return [torch.optim.RMSprop(model.dense.parameters(), lr=0.001, centered=True), SignDescent(first, 0.001)]
    if MODE == "own_foreign":
        return torch.optim.Adagrad([*model.parameters(), torch.nn.Parameter(torch.zeros(2))], lr=0.01)
    if MODE.startswith("own"):
        return torch.optim.AdamW(model.parameters(), lr=0.01, amsgrad=True)
    groups = [{"params": list(model.dense.parameters()), "lr": 0.02, "weight_decay": 0.01},
              {"params": [p for n, p in model.named_parameters() if not n.startswith("dense")]}]
    if MODE == "adamw":
        return torch.optim.AdamW(groups, lr=0.01)
    if MODE == "adam":
        return torch.optim.Adam(groups, lr=0.01)
    if MODE == "rmsprop":
        return torch.optim.RMSprop(groups, lr=0.001, momentum=0.5)
    if MODE == "missing":
        del groups[1]
    if MODE == "list":
        return [torch.optim.SGD(groups, lr=0.01)]
    if MODE == "lbfgs":
        return torch.optim.LBFGS(model.parameters())
    if MODE == "sgd":
        return torch.optim.SGD(groups, lr=0.01)
    return torch.optim.SGD(groups, lr=0.01, momentum=0.9, nesterov=MODE == "nesterov")


def try_children():
    """Signals to stop end this process's children, and not this process."""
    child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(1000,))
    child.start()
    child.terminate()
    child.join(60)
    shell = subprocess.run(["sh", "-c", "kill -INT $$; exit 3"])
    assert [child.exitcode, shell.returncode] == [-signal.SIGTERM, -signal.SIGINT]
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGINT)


def without_compiler():
    """Optimizers import torch's compiler, which takes seconds of a processor, only to keep it out of their methods."""
    stub = types.ModuleType("torch._dynamo")
    stub.disable = lambda function, *_, **__: function
    stub.graph_break = lambda: None
    sys.modules["torch._dynamo"] = torch._dynamo = stub


def main():
    if MODE == "own_two" and os.environ.get("MUSTER_RANK") == "-1":
        try_children()
    if not MODE.startswith("compile"):
        without_compiler()
    torch.manual_seed(1)
    torch.set_deterministic_debug_mode("error")
    model = Net()
    if "channels_last" in MODES:
        model = model.to(memory_format=torch.channels_last)
    if MODE.startswith("frozen_"):
        model.conv.weight.requires_grad = False
    if "frozen" in MODES:
        model.norm.weight.requires_grad = False
    if MODE == "frozen_all":
        model.spare.requires_grad_(False)
    if MODE == "half":
        model.half()
    job = muster.torch.Job(*sys.argv[2:])
    if FAKE_DEVICE and not job.is_updater:
        job.device = fake_device.DEVICE
    model.to(job.device)
    if MODE == "second":
        muster.torch.Job()
    rank = int(os.environ["MUSTER_RANK"])
    optimizer = make_optimizer(model)
    optimizers = optimizer if isinstance(optimizer, list) else [optimizer]
    schedules = [torch.optim.lr_scheduler.StepLR(one, 2, 0.5) for one in optimizers]
    before = [parameter.detach().clone() for parameter in model.parameters()]
    if MODE == "compile_before":
        model = torch.compile(model)
    if MODE == "cycle":
        schedules = [torch.optim.lr_scheduler.OneCycleLR(optimizer, [0.02, 0.01], total_steps=20)]
    job.prepare(model, optimizer, update="program" if MODE.startswith("own") else "server")
    average = None
    if MODE in ("own_slow", "keep"):
        average = torch.optim.swa_utils.AveragedModel(model)
        name = "other" if os.environ.get("MUSTER_TEST_RENAMED") else "average"
        job.keep(**{name: average})
    if MODE == "state":
        other = make_optimizer(model)
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        other.step()
        optimizer.load_state_dict(other.state_dict())
    if MODE == "compile_after":
        model = torch.compile(model)
    twin = Twin(model, before) if MODE in TWINS and not FAKE_DEVICE else None

    def evaluate(x, y):
        assert not model.training and not torch.is_grad_enabled()
        logits = model(x)
        return {"loss": F.cross_entropy(logits, y), "accuracy": (logits.argmax(1) == y).float().mean()}

    job.evaluation(tensors(), evaluate)
    loads = MODE.startswith("loader")
    steps = job.steps(Augmented() if loads or MODE == "augmented" else tensors(), workers=2 if loads else 0)
    if "scaler" in MODE:  # torch 2.1 and 2.2 have only CUDA's
        scaler = torch.amp.GradScaler("cpu") if hasattr(torch.amp, "GradScaler") else torch.cuda.amp.GradScaler()
    seen = 0
    for step in steps:
        assert step.number == seen and all(module.training for module in model.modules())
        seen += 1
        if MODE == "eval" and rank == 1 and step.number == 3:
            model.eval()
        if MODE in ("slow", "own_slow"):
            time.sleep(0.1)
        if MODE == "own_slow":
            for group in optimizer.param_groups:
                group["lr"] = 0.01 / (1 + step.number)
        for x, y in step:
            if "frozen" in MODES and step.number % 2 == 1:
                model.norm.eval()  # of this slice
            if "channels_last" in MODES:
                x = x.to(memory_format=torch.channels_last)
            with torch.autocast("cpu", torch.bfloat16, enabled="amp" in MODES):
                logits = model(x)
                loss = F.cross_entropy(logits, y)
            if "sparse" in MODES:
                loss = loss + model.embedding(y).square().mean()
            if MODE == "raises" and rank == 1 and step.number == 3:
                raise ZeroDivisionError("no more fuel")
            if MODE == "exits" and rank == 1 and step.number == 3:
                sys.exit(5)
            if MODE == "plain_backward":
                loss.backward()
            elif "twice" in MODES or MODE == "again" or MODE == "slow" and step.number % 2 == 1:
                step.backward(0.5 * loss, last=MODE == "again")
                step.backward(0.5 * F.cross_entropy(model(x), y))
            elif MODE == "scaler":
                step.backward(scaler.scale(loss))
            elif MODE not in ("no_backward", "caught"):
                step.backward(loss, accuracy=(logits.argmax(1) == y).float().mean())
            if MODE == "caught":
                try:
                    step.backward(loss.sum().view(1, 1).expand(2, 2))
                except muster.Error:
                    pass
            if MODE == "inner_step":
                optimizer.step()
            if MODE == "inner_zero":
                optimizer.zero_grad()
            if MODE == "assign":
                for parameter in model.parameters():
                    parameter.grad = torch.zeros_like(parameter)
            if MODE == "clip":
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            if MODE == "break" and step.number == 2:
                break
            if twin is not None and not step.is_check:
                twin.add(x, y, job._work)
        if MODE.startswith("own"):
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if MODE == "own_raises" and job.is_updater and step.number == 3:
            raise ZeroDivisionError("no more fuel")
        if MODE == "own_exits" and job.is_updater and step.number == 3:
            os._exit(5)
        if MODE in ("scaler", "own_scaler"):
            scaler.step(optimizer)
        elif MODE in ("closure", "own_closure"):
            optimizer.step(lambda: 0.0)
        else:
            for one in optimizers:
                one.step()
        for one in optimizers:
            one.zero_grad()
        if MODE == "own_slow" and job.is_updater:
            with torch.no_grad():
                model.conv.weight.mul_(0.99)
        if average is not None:
            average.update_parameters(model)
        if twin is not None:
            twin.step()
        for one in schedules:
            one.step()
        if MODE == "group":
            optimizer.add_param_group({"params": [torch.nn.Parameter(torch.zeros(2))]})
        if MODE == "leaves" and step.number == 3:
            break
        if MODE == "clamp":
            model.conv.weight.data = model.conv.weight.data.clamp(-1, 1)
        if MODE == "load":
            model.load_state_dict(model.state_dict())
    assert seen == len(steps) or MODE == "leaves"
    if twin is not None:
        print(f"difference {twin.difference(model):.3g}")
    if MODE == "keys":
        print("keys", *model.state_dict())
    if average is not None and job.is_updater:
        total = sum(float(p.double().sum()) for p in average.parameters())
        (pathlib.Path(os.environ["MUSTER_TEST_RUN"]) / "average").write_text(f"{total!r}")


TWINS = ("sgd", "momentum", "nesterov", "adam", "adamw", "rmsprop", "own", "own_two")


class Twin:
    """A plain loop over the same slices, with the torch optimizer."""

    def __init__(self, model, values):
        self.model = Net()
        with torch.no_grad():
            for parameter, value in zip(self.model.parameters(), values):
                parameter.copy_(value)
        made = make_optimizer(self.model)
        self.optimizers = made if isinstance(made, list) else [made]
        self.schedules = [torch.optim.lr_scheduler.StepLR(one, 2, 0.5) for one in self.optimizers]
        self.statistics = [self.model.norm.running_mean.clone(), self.model.norm.running_var.clone()]
        self.sums = [torch.zeros_like(one) for one in self.statistics]

    def add(self, x, y, work):
        norm = self.model.norm
        norm.running_mean.copy_(self.statistics[0])
        norm.running_var.copy_(self.statistics[1])
        torch.manual_seed((work.seed ^ 1) & 0x7FFFFFFFFFFFFFFF)
        share = len(work.samples) / work.batch
        (F.cross_entropy(self.model(x), y) * share).backward()
        for total, one in zip(self.sums, (norm.running_mean, norm.running_var)):
            total += share * one

    def step(self):
        if MODE.startswith("own"):
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer, schedule in zip(self.optimizers, self.schedules):
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
        for total, one in zip(self.sums, self.statistics):
            one.copy_(total)
            total.zero_()

    def difference(self, model):
        pairs = [*zip(model.parameters(), self.model.parameters()),
                 (model.norm.running_mean, self.statistics[0]),
                 (model.norm.running_var, self.statistics[1])]
        return max(float((one - other).detach().abs().max()) for one, other in pairs)


if __name__ == "__main__":
    main()
