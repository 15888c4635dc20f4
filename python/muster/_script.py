"""Calls of a plain PyTorch script that a job answers: loss.backward(), torch.save, averages. They are
replaced in torch when prepare gets a loader, and do as always outside of the job's loop."""

import functools
import os
from typing import Any

import torch

from muster._client import UsageError
from muster._shared import Epoch

_plain_backward = torch.Tensor.backward
_plain_save = torch.save
_Average = torch.optim.swa_utils.AveragedModel
_plain_update = _Average.update_parameters


def take_calls(job: Any) -> None:
    """For the newest job of this process. Its loaders' processes, which fork, keep the plain calls."""
    process = os.getpid()

    def is_in_body() -> bool:
        return job._work is not None and job._loop.is_inside and os.getpid() == process

    @functools.wraps(_plain_backward)
    def backward(self: torch.Tensor, gradient: Any = None, retain_graph: Any = None, create_graph: bool = False,
                 inputs: Any = None) -> None:
        if not is_in_body() or job._gradients.is_in_backward or inputs is not None:
            return _plain_backward(self, gradient, retain_graph, create_graph, inputs)  # type: ignore
        if gradient is not None or create_graph:
            raise UsageError("loss.backward(gradient, create_graph=True) in the loop over batches: expected "
                             "loss.backward(), or job.backward(loss); for other gradients, torch.autograd.grad")
        job._gradients.backward(self, None, None, True, {}, retain_graph)

    @functools.wraps(_plain_save)
    def save(obj: Any, f: Any, *args: Any, **options: Any) -> None:
        is_file = isinstance(f, (str, os.PathLike))
        if not is_file or job._is_computing or os.getpid() != process:
            return _plain_save(obj, f, *args, **options)
        if job._is_over and job._client.is_alone:
            return write(obj, f, *args, **options)
        job.save(obj, f, *args, **options)

    @functools.wraps(_plain_update)
    def update_parameters(self: Any, *args: Any, **options: Any) -> None:
        if job._client.joined and not job._is_over:
            raise UsageError("AveragedModel.update_parameters was called in a job: a process that joins later, or a "
                             "resumed run, would have another average. Use job.steps with update=\"program\" and "
                             "job.keep (docs/OWN_MODEL.md), or optimizer.ema_decay of the config")
        return _plain_update(self, *args, **options)

    torch.Tensor.backward = backward  # type: ignore[method-assign]
    torch.save = torch.serialization.save = save
    _Average.update_parameters = update_parameters  # type: ignore[method-assign]


def write(value: Any, path: Any, *args: Any, **options: Any) -> None:
    """torch.save, but the file is complete or as it was before."""
    temporary = f"{os.fspath(path)}.writing-{os.getpid()}"
    try:
        _plain_save(_plain(value), temporary, *args, **options)
        os.replace(temporary, path)
    finally:
        if os.path.exists(temporary):
            os.remove(temporary)


def _plain(value: Any) -> Any:
    """Epochs as numbers, which torch.load(weights_only=True) allows."""
    if isinstance(value, Epoch):
        return int(value)
    if type(value) is dict:
        return {_plain(key): _plain(one) for key, one in value.items()}
    return type(value)(_plain(one) for one in value) if type(value) in (list, tuple) else value
