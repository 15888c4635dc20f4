"""The samples of slices and blocks, for muster.torch."""

import collections
import dataclasses
import signal
from typing import Any, Callable, Deque, Dict, Iterator, List, Optional, Tuple

import torch
from torch.utils.data import (DataLoader, Dataset, IterableDataset, RandomSampler, SequentialSampler,
                              TensorDataset, default_collate)

from muster._client import Client, UsageError, Work
from muster._job import seed_all

_Slice = Tuple[int, int]  # step, index


@dataclasses.dataclass(frozen=True)
class Source:
    """A training set, and how it is loaded."""

    dataset: Any
    collate: Optional[Callable[[List[Any]], Any]]
    options: Dict[str, Any]  # of the DataLoader that loads slices
    batch: int = 0  # 0: not said
    drop_last: bool = False
    in_order: bool = False

    @staticmethod
    def of(loader: "DataLoader[Any]") -> "Source":
        """Raises UsageError for what slices cannot follow."""
        sampler = loader.sampler
        _refuse_stream(loader.dataset)
        if loader.batch_size is None or type(loader.batch_sampler) is not torch.utils.data.BatchSampler:
            raise UsageError("the DataLoader has no batch_size, or a batch_sampler of its own: expected "
                             "DataLoader(data, batch_size=..., shuffle=True), because the server chooses the "
                             "samples of a batch")
        if type(sampler) is torch.utils.data.SubsetRandomSampler:
            dataset, sampler = evaluated(loader), RandomSampler(loader.dataset)  # type: ignore[arg-type]
        else:
            dataset = loader.dataset
        is_random = type(sampler) is RandomSampler and not sampler.replacement and \
            sampler.num_samples == len(loader.dataset)  # type: ignore[arg-type]
        if not is_random and type(sampler) is not SequentialSampler:
            remedy = "remove it, and give the DataLoader shuffle=True and the batch size of all processes " \
                "together" if isinstance(sampler, torch.utils.data.distributed.DistributedSampler) else \
                "for weighted or repeated samples, a data set whose __getitem__ draws with torch's generator"
            raise UsageError(f"the DataLoader has a {type(sampler).__name__}: expected shuffle=True or False, "
                             f"because the server chooses the samples of a batch; {remedy}")
        kept = ("num_workers", "prefetch_factor", "pin_memory", "timeout", "worker_init_fn",
                "multiprocessing_context")
        return Source(dataset, loader.collate_fn, {name: getattr(loader, name) for name in kept},
                      loader.batch_size, loader.drop_last, not is_random)


def evaluated(loader: "DataLoader[Any]") -> Any:
    """The data set of what this loader gives in one pass, whose order does not matter."""
    sampler = loader.sampler
    if loader.batch_size is None or type(loader.batch_sampler) is not torch.utils.data.BatchSampler:
        raise UsageError("the DataLoader for evaluation has no batch_size, or a batch_sampler of its own: expected "
                         "DataLoader(data, batch_size=...)")
    if type(sampler) is torch.utils.data.SubsetRandomSampler:
        return torch.utils.data.Subset(loader.dataset, [int(one) for one in sampler.indices])
    if type(sampler) not in (SequentialSampler, RandomSampler):
        raise UsageError(f"the DataLoader for evaluation has a {type(sampler).__name__}: expected none, or a "
                         f"SubsetRandomSampler; a function of job.once can use any loader")
    return loader.dataset


def _refuse_stream(dataset: Any) -> None:
    if isinstance(dataset, IterableDataset):
        raise UsageError("the data set is an IterableDataset: expected one with indices "
                         "(__len__ and __getitem__), because slices name their samples")


def unwrapped(model: Any) -> Any:
    """The model without what other libraries put around it to train it in parallel."""
    if isinstance(model, torch.nn.DataParallel):
        return model.module
    if isinstance(model, torch.nn.parallel.DistributedDataParallel):
        raise UsageError("the model is a DistributedDataParallel, which would average gradients a second time: "
                         "expected the model itself; remove it, and init_process_group")
    if isinstance(model, torch.nn.Module):
        return model
    raise UsageError(f"prepare got {type(model).__name__} as model: expected a torch.nn.Module; several "
                     f"models train as parts of one module (docs/OWN_MODEL.md)")


class Samples(Dataset[Any]):
    """A data set whose items are whole slices. Each is loaded with the generators seeded for it, so
    random augmentation has the same result in every process, with and without loader workers."""

    def __init__(self, dataset: Any, collate: Optional[Callable[[List[Any]], Any]]) -> None:
        _refuse_stream(dataset)
        if isinstance(dataset, tuple) and dataset and all(isinstance(one, torch.Tensor) for one in dataset):
            dataset = TensorDataset(*dataset)
        for method in ("__len__", "__getitem__"):
            if not hasattr(dataset, method):
                raise UsageError(f"the data set {type(dataset).__name__} has no {method}: expected "
                                 f"a map-style data set or a tuple of tensors")
        self._dataset = dataset
        self._collate = collate
        self._is_tensors = type(dataset) is TensorDataset and collate in (None, default_collate)

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, item: Tuple[int, Any]) -> Any:
        seed, indices = item
        if self._is_tensors:
            rows = torch.from_numpy(indices)
            return [tensor[rows] for tensor in self._dataset.tensors]
        seed_all(seed)
        if hasattr(self._dataset, "__getitems__"):
            samples = self._dataset.__getitems__(indices.tolist())
        else:
            samples = [self._dataset[index] for index in indices.tolist()]
        return (self._collate or default_collate)(samples)


class Loader:
    """Loads the slices of one process, ahead of time if it has workers.

    It expects that this process gets the same slices in every step. A slice that was not expected,
    because another process was lost or joined, is loaded when it is needed.
    """

    def __init__(self, samples: Samples, client: Client, options: Dict[str, Any]) -> None:
        self._samples = samples
        self._client = client
        self._options = options
        self._expected: Deque[_Slice] = collections.deque()  # asked of the workers, oldest first
        self._ahead: Optional[Iterator[Any]] = None
        self._mine: List[int] = []  # the slices of a step that the workers load
        self._step = -1
        self._now: List[int] = []  # the slices of the current step so far

    def load(self, work: Work, ahead: bool = True) -> Any:
        """``ahead``: whether the slice may come from the workers."""
        if not ahead or self._options.get("num_workers", 0) == 0:
            return self._samples[work.seed, work.samples]
        if work.step != self._step:
            # The steps of two losses in a row may differ, but work is stable again soon.
            if self._step >= 0 and sorted(self._now) != self._planned_now():
                self._restart(work.step, self._now)
            self._step, self._now = work.step, []
        self._now.append(work.index)
        wanted = (work.step, work.index)
        while self._ahead is not None and self._expected and self._expected[0] < wanted:
            self._take()  # another process has it
        if self._ahead is not None and self._expected and self._expected[0] == wanted:
            return self._take()
        return self._samples[work.seed, work.samples]

    def has_lost_worker(self) -> bool:
        """Whether a signal has ended a worker, except by the DataLoader's own terminate()."""
        codes = [one.exitcode or 0 for one in getattr(self._ahead, "_workers", [])]
        return any(code < 0 and code != -signal.SIGTERM for code in codes)

    def _planned_now(self) -> List[int]:
        """The slices that the workers load of the current step: a short last one has fewer."""
        return [index for index in self._mine
                if len(self._client.plan(self._step, index).samples) > 0]

    def _take(self) -> Any:
        assert self._ahead is not None
        try:
            data = next(self._ahead)
        except (OSError, EOFError):
            self._tell_ended()
            raise
        self._expected.popleft()
        return data

    def _tell_ended(self) -> None:
        """A loader that calls exit() breaks the connection to it, which alone would look like a
        failure of the machine. The DataLoader itself tells only sometimes."""
        for one in getattr(self._ahead, "_workers", []):
            one.join(0.2)
            if one.exitcode is not None and one.exitcode > 0:
                raise RuntimeError(f"a process that loads data ended with exit code "
                                   f"{one.exitcode}") from None

    def _restart(self, step: int, slices: List[int]) -> None:
        self._mine = sorted(slices)
        self._expected.clear()
        self._ahead = iter(DataLoader(self._samples, sampler=self._forecast(step, self._mine),
                                      batch_size=None, **self._options))

    # The loader asks for one slice whenever one is taken, which is always within a slice.
    def _forecast(self, step: int, slices: List[int]) -> Iterator[Tuple[int, Any]]:
        for later in range(step, self._client.total_steps):
            for index in slices:
                planned = self._client.plan(later, index)
                if len(planned.samples) > 0:
                    self._expected.append((later, index))
                    yield planned.seed, planned.samples


def to_device(data: Any, device: torch.device) -> Any:
    if device.type == "cpu":
        return data
    if isinstance(data, torch.Tensor):
        return data.to(device, non_blocking=True)
    if isinstance(data, dict):
        return {key: to_device(one, device) for key, one in data.items()}
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(to_device(one, device) for one in data))
    if isinstance(data, (tuple, list)):
        return type(data)(to_device(one, device) for one in data)
    return data.to(device) if hasattr(data, "to") else data  # graphs, packed sequences, encodings


def call(function: Callable[..., Any], data: Any) -> Any:
    """With the parts of a batch as arguments."""
    return function(*data) if isinstance(data, (tuple, list)) else function(data)
