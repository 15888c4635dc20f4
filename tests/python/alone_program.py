"""A torch program that trains in a job and alone, with the same bits.

usage: alone_program.py MODE    one of torch_program.py's, clip, scaled, overflow, own_overflow
"""

import os
import sys

import torch
import torch.nn.functional as F

import muster.torch
import torch_program

BATCH, EPOCHS = 31, 2  # the last batch of an epoch has 3 samples, and one of its slices none


def train(mode):
    """The model, the job, and what each slice was."""
    torch_program.MODE, torch_program.MODES = mode, [mode]
    torch.manual_seed(1)
    model = torch_program.Net()
    precision = "fp16" if mode.endswith(("scaled", "overflow")) else None
    job = muster.torch.Job(batch_size=BATCH, epochs=EPOCHS, precision=precision)
    optimizer = torch_program.make_optimizer(model)
    if mode == "clip":
        plain = job._client.set_optimizer
        job._client.set_optimizer = lambda text, rate: plain(f"{text} clip_norm: 0.5", rate)
    job.prepare(model, optimizer, update="program" if mode.startswith("own") else "server")
    optimizers = optimizer if isinstance(optimizer, list) else [optimizer]
    schedules = [torch.optim.lr_scheduler.StepLR(one, 2, 0.5) for one in optimizers]

    def evaluate(x, y):
        logits = model(x)
        return {"loss": F.cross_entropy(logits, y), "accuracy": (logits.argmax(1) == y).float().mean()}

    job.evaluation(torch_program.tensors(), evaluate)
    slices = []
    for step in job.steps(torch_program.Augmented()):
        for x, y in step:
            if not step.is_check:
                slices.append((step.number, job._work.index, job._work.seed, job._work.samples.tolist()))
            logits = model(x)
            loss = F.cross_entropy(logits, y)
            if mode.endswith("overflow") and step.number == 2:
                loss = loss * 1e36  # the gradient is finite without a scale
            step.backward(loss, accuracy=(logits.argmax(1) == y).float().mean())
        if mode.startswith("own"):
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for one in optimizers + schedules:
            one.step()
        for one in optimizers:
            one.zero_grad()
    return model, job, slices


if __name__ == "__main__":
    torch_program.without_compiler()
    print("slices", train(sys.argv[1])[2])
    if len(sys.argv) > 2:
        raise ZeroDivisionError("no more fuel")
