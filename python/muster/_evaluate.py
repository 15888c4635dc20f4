"""Evaluates a data set between epochs with all processes together."""

import zlib
from typing import Any, Callable, Dict, List

import numpy as np
import torch
from torch.utils.data import DataLoader

from muster._client import UsageError
from muster._data import Samples, call, evaluated, to_device
from muster._job import seed_all


def evaluate(job: Any, loader: Any, function: Callable[..., Any]) -> Any:
    """The batches are cut into as many parts as a step has slices. Each process begins with the parts
    whose slices it had in the last step, and computes others only if their process is lost."""
    if not isinstance(loader, DataLoader):
        raise UsageError(f"job.evaluate got {type(loader).__name__}: expected a DataLoader, and a function of its "
                         f"batches that returns means")
    name = getattr(function, "__qualname__", type(function).__name__)
    client = job._joined()
    samples = Samples(evaluated(loader), loader.collate_fn)
    size = loader.batch_size or 1
    if len(samples) == 0:
        raise UsageError("job.evaluate got an empty data set")
    starts = np.arange(0, len(samples), size)
    parts = [[np.arange(one, min(one + size, len(samples))) for one in part]
             for part in np.array_split(starts, min(client.slices, len(starts)))]
    mine = [index for index in job._taken if index < len(parts)]
    sums: Dict[int, Any] = {}
    for index in mine + [one for one in range(len(parts)) if one not in mine]:
        sums[index] = job._once(f"{name}, part {index}",
                                lambda part=parts[index]: _sums(job, loader, samples, part, function))
    seed_all(zlib.crc32(f"{job.seed} {job._shared.position} {name} is over".encode()))
    totals: Dict[str, float] = {}
    for index in range(len(parts)):
        for key, value in sums[index].items():
            totals[key] = totals.get(key, 0.0) + value
    means = {key: value / len(samples) for key, value in totals.items()}
    return means.get("") if "" in means else means


def _sums(job: Any, loader: Any, samples: Samples, batches: List[Any],
          function: Callable[..., Any]) -> Dict[str, float]:
    """Over the samples of these batches. The name of a result that is a number is empty."""
    options = {"num_workers": loader.num_workers, "pin_memory": loader.pin_memory}
    items = [(zlib.crc32(f"{job.seed} {batch[0]}".encode()), batch) for batch in batches]
    totals: Dict[str, float] = {}
    job._model.eval()
    with torch.no_grad():
        for data, batch in zip(DataLoader(samples, sampler=items, batch_size=None, **options), batches):
            result = call(function, to_device(data, job.device))
            for key, value in (result if isinstance(result, dict) else {"": result}).items():
                totals[key] = totals.get(key, 0.0) + float(value) * len(batch)
    return totals
