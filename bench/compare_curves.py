#!/usr/bin/python3
"""Compares the training curves of Muster and PyTorch for each model: the same initial weights, the same
images in the same order, no dropout, SGD with momentum. The exit code is 1 if any two losses differ by
more than 1e-4 in the first 10 steps or by more than 1e-3 in the first 50 (absolute; losses start at
about 2.3).

    bench/compare_curves.py [--bin build/release/bin] [--models linear,tutorial,...] [--steps 200]
                            [--slices 2] [--data DIR] [--double] [--out DIR] [--set path.to.key=value …]

Muster trains with 2 workers. PyTorch gets the initial weights and preprocessed batches from bench/dump_training
(scripts/build.sh release dump_training) and emulates slices: it runs forward and backward for each slice separately
(batch norm's statistics are per slice), divides the loss by the size of the whole batch, and adds the gradients.

Rounding makes any two runs diverge. They diverge faster with a higher learning rate, so the rate is small here.
--double shows how much is due to rounding: PyTorch computes with 64 bits, and its difference from PyTorch with 32 bits
is printed too.
--data is a folder with CIFAR-10; default: a procedural set (muster data synth). MobileNetV2, whose images are larger,
trains on 64 random images, which it memorizes.
Needs PyTorch (Debian: python3-torch).
"""
import argparse
import json
import math
import os
import subprocess
import sys
import tempfile

import numpy
import torch
import torch.nn as nn
import torch.nn.functional as functional

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "bench/peers"))
from models import MODELS  # noqa: E402

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")  # CPU only: otherwise a job would use idle GPUs

# (number of first steps, largest difference allowed in them)
LIMITS = [(10, 1e-4), (50, 1e-3)]
MOMENTUM = 0.9

# model: file, data, samples per batch, learning rate
CASES = {
    "linear": ("linear", "CIFAR10 32", 64, 0.0005),
    "tutorial": ("cifar10_tutorial", "CIFAR10 24", 64, 0.01),
    "multigpu_cnn": ("multigpu_cnn", "CIFAR10 28", 32, 0.002),
    "resnet20": ("resnet20", "CIFAR10 32", 64, 0.005),
    "resnet18": ("resnet18", "CIFAR10 32", 32, 0.0005),
    "mobilenet_v2": ("mobilenet_v2", "SYNTHETIC 224", 16, 0.00005),
}


def data_section(format_and_size):
    kind, size = format_and_size.split()
    if kind == "SYNTHETIC":
        return f"format: SYNTHETIC synthetic {{ height: {size} width: {size} channels: 3 classes: 10 train_samples: 64 test_samples: 8 }} preprocess {{ standardize: true }}"
    return f"format: {kind} preprocess {{ crop_height: {size} crop_width: {size} standardize: true }}"


def write_config(name, folder):
    """Writes the run's config: no dropout, plain momentum, images only standardized."""
    file, data, batch, rate = CASES[name]
    with open(os.path.join(ROOT, "configs/models", file + ".txtpb")) as model:
        lines = [line for line in model if " dropout {" not in line]
    # MobileNetV2's last layer has one output per class of the data, but the PyTorch model has 1000.
    text = "".join(lines).replace("  dense { weights", "  dense { units: 1000 weights")
    with open(os.path.join(folder, "model.txtpb"), "w") as out:
        out.write(text)
    path = os.path.join(folder, name + ".txtpb")
    with open(path, "w") as out:
        out.write(f"""
run {{ seed: 1 steps: 1 global_batch: {batch} log_every_steps: 1 }}
cluster {{ workers: 2 }}
data {{ {data_section(data)} }}
model_file: "model.txtpb"
optimizer {{ type: MOMENTUM momentum: {MOMENTUM} }}
learning_rate {{ type: CONSTANT base: {rate} }}
evaluation {{ every_epochs: 0 skip_final: true }}
worker {{ threads: 1 }}
""")
    return path


def settings(arguments):
    given = [f"run.steps={arguments.steps}", f"run.slices={arguments.slices}"] + arguments.set
    return ["--data", arguments.data] + [word for setting in given for word in ("--set", setting)]


def muster_losses(arguments, config, folder):
    run = os.path.join(folder, "run")
    done = subprocess.run([os.path.join(arguments.bin, "muster"), "launch", config, "--run-dir", run] + settings(arguments),
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        sys.exit(done.stdout)
    with open(os.path.join(run, "metrics.jsonl")) as metrics:
        lines = [json.loads(line) for line in metrics]
    assert lines[-1]["final"] and lines[-1]["reason"] == "completed"
    losses = [line["train_loss"] for line in lines if "train_loss" in line and not line.get("final")]
    assert len(losses) == arguments.steps, (len(losses), arguments.steps)
    return losses


def dump(arguments, config, folder):
    subprocess.run([os.path.join(arguments.bin, "dump_training"), config, folder, "--steps", str(arguments.steps)]
                   + settings(arguments), check=True)
    with open(os.path.join(folder, "training.json")) as description:
        return json.load(description)


def as_tensor(weights, variable):
    at = variable["offset"]
    tensor = torch.from_numpy(weights[at:at + variable["count"]].reshape(variable["shape"]).copy())
    # convolution: [out, height, width, in] → [out, in, height, width]
    return tensor.permute(0, 3, 1, 2).contiguous() if tensor.dim() == 4 else tensor


PARAMETER = {"weights": "weight", "bias": "bias", "scale": "weight", "shift": "bias",
             "running_mean": "running_mean", "running_variance": "running_var"}


def take_weights(model, training, folder):
    """Copies Muster's initial weights into `model`, matching the n-th module with variables to the n-th
    layer with variables. Returns the optimizer's parameter groups, one per weight decay."""
    weights = numpy.fromfile(os.path.join(folder, "weights.f32"), dtype="<f4")
    modules = [m for m in model.modules() if isinstance(m, (nn.Conv2d, nn.Linear, nn.BatchNorm2d))]
    layers = sorted({variable["layer"] for variable in training["variables"]})
    assert len(modules) == len(layers), (len(modules), len(layers))
    module_of = dict(zip(layers, modules))
    taken, groups = set(), {}
    for variable in training["variables"]:
        module = module_of[variable["layer"]]
        target = getattr(module, PARAMETER[variable["name"].rsplit("/", 1)[1]])
        source = as_tensor(weights, variable)
        assert target.shape == source.shape, (variable["name"], tuple(target.shape), tuple(source.shape))
        with torch.no_grad():
            target.copy_(source)
        taken.add(id(target))
        if isinstance(target, nn.Parameter):
            groups.setdefault(variable["weight_decay"] or 0.0, []).append(target)
    assert all(id(parameter) in taken for parameter in model.parameters()), "a parameter has no counterpart"
    return [{"params": parameters, "weight_decay": decay} for decay, parameters in groups.items()]


def torch_losses(name, training, folder, kind):
    make = MODELS[name][0]
    model = make(shape=tuple(training["input"]), dropout=False)
    groups = take_weights(model, training, folder)
    model = model.to(kind).train().to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(groups, CASES[name][3], momentum=MOMENTUM)
    images = numpy.memmap(os.path.join(folder, "images.f32"), dtype="<f4", mode="r").reshape(-1, *training["input"])
    labels = numpy.fromfile(os.path.join(folder, "labels.i32"), dtype="<i4")
    losses, first = [], 0
    for slices in training["steps"]:
        optimizer.zero_grad()
        total = 0.0
        for count in slices:
            x = torch.from_numpy(images[first:first + count].copy()).to(kind).permute(0, 3, 1, 2)
            y = torch.from_numpy(labels[first:first + count]).long()
            loss = functional.cross_entropy(model(x), y, reduction="sum") / sum(slices)
            loss.backward()
            total += float(loss.detach())
            first += count
        optimizer.step()
        losses.append(total)
    return losses


def differences_of(a, b):
    return [abs(x - y) for x, y in zip(a, b)]


def describe(differences):
    return ", ".join([f"first {steps} steps {max(differences[:steps]):.1e}" for steps, _ in LIMITS]
                     + [f"all {max(differences):.1e}"])


def compare(name, arguments):
    with tempfile.TemporaryDirectory() as folder:
        config = write_config(name, folder)
        ours = muster_losses(arguments, config, folder)
        training = dump(arguments, config, folder)
        theirs = torch_losses(name, training, folder, torch.float64 if arguments.double else torch.float32)
        single = torch_losses(name, training, folder, torch.float32) if arguments.double else None
    assert all(math.isfinite(value) for value in ours + theirs), "a loss is not finite"
    differences = differences_of(ours, theirs)
    moved = max(ours) - min(ours) > 0.01  # two runs that do not train would also agree
    near = all(max(differences[:steps]) <= limit for steps, limit in LIMITS)
    at = lambda step: f"{step} {ours[step - 1]:.5f}/{theirs[step - 1]:.5f}"
    print(f"{name:<13} {'does not train' if not moved else 'agrees' if near else 'DIFFERS'}   loss at step "
          f"{', '.join(at(step) for step in sorted({1, min(50, len(ours)), len(ours)}))}   "
          f"largest difference: {describe(differences)}", flush=True)
    if single:
        print(f"{'':<13} PyTorch with 32 bits vs. 64 bits: {describe(differences_of(single, theirs))}", flush=True)
    if arguments.out:
        os.makedirs(arguments.out, exist_ok=True)
        with open(os.path.join(arguments.out, name + ".csv"), "w") as out:
            out.write("step,muster,pytorch\n")
            out.writelines(f"{step},{a:.9g},{b:.9g}\n" for step, (a, b) in enumerate(zip(ours, theirs), 1))
    return near and moved


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(ROOT, "build/release/bin"))
    parser.add_argument("--models", default=",".join(CASES))
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--slices", type=int, default=2)
    parser.add_argument("--data")
    parser.add_argument("--double", action="store_true")
    parser.add_argument("--set", action="append", default=[], help="setting of Muster's run, such as worker.convolution=DIRECT")
    parser.add_argument("--out", help="folder for MODEL.csv with step and both losses")
    arguments = parser.parse_args()
    torch.set_flush_denormal(True)
    with tempfile.TemporaryDirectory() as folder:
        if not arguments.data:
            arguments.data = os.path.join(folder, "data")
            subprocess.run([os.path.join(arguments.bin, "muster"), "data", "synth", arguments.data],
                           check=True, stdout=subprocess.DEVNULL)
        print("losses are shown as Muster / PyTorch")
        results = [compare(name, arguments) for name in arguments.models.split(",")]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
