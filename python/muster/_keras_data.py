"""Training and evaluation sets of Keras, by batch: every process takes its slices of each batch."""

import random
import zlib
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import keras
import numpy as np

from muster._alone_plan import StepPlan, epoch_order, seed_of
from muster._client import UsageError
from muster._job import seed_all

Slice = Tuple[Any, int, int]  # data, its samples, those of the batch


class Source:
    """A set, which is gone through as often as needed. ``batches``: of one pass."""

    batches: int
    batch = 0  # samples; 0: not known

    def slice(self, number: int, index: int, slices: int) -> Slice:
        """Of batch ``number`` of all passes."""
        raise NotImplementedError

    def whole(self, number: int) -> Tuple[Any, int]:
        """A batch, and its samples."""
        data, count, _ = self.slice(number, 0, 1)
        return data, count

    def sample(self) -> bytes:
        """Something that differs if another process has other data."""
        return b""

    def begin_pass(self, number: int) -> None:
        """Called in every process, whether it has batches of the pass or not."""

    def end_pass(self, number: int) -> None:
        """The same."""


class Arrays(Source):
    """Arrays with one row for each sample."""

    def __init__(self, data: Any, batch: int, shuffle: bool, seed: int) -> None:
        self._data = data
        sizes = {len(one) for one in keras.tree.flatten(data) if one is not None}
        if len(sizes) != 1 or 0 in sizes:
            rows = ", ".join(map(str, sorted(sizes))) or "no"
            raise UsageError(f"the arrays of a data set have {rows} rows: expected the same number, at least 1, in all")
        self._size = sizes.pop()
        self.batch = min(batch, self._size)
        self._seed, self._shuffle = seed, shuffle
        self._plans: Dict[int, StepPlan] = {}
        self.batches = -(-self._size // self.batch)

    def slice(self, number: int, index: int, slices: int) -> Slice:
        if slices not in self._plans:
            self._plans[slices] = StepPlan(self._size, self.batch, slices, self._seed, False, not self._shuffle)
        work = self._plans[slices].slice_at(number, index)
        rows = work.samples
        is_run = len(rows) > 0 and not self._shuffle
        part = slice(int(rows[0]), int(rows[-1]) + 1) if is_run else rows
        return keras.tree.map_structure(lambda one: None if one is None else one[part], self._data), len(rows), \
            work.batch


    def sample(self) -> bytes:
        rows = np.linspace(0, self._size - 1, 16).astype(np.int64)
        parts = [_bytes(one[rows]) for one in keras.tree.flatten(self._data) if one is not None]
        return b"%08x, %d rows" % (zlib.crc32(b"".join(parts)), self._size)


class _Cut(Source):
    """A set that gives whole batches, of which slices are parts."""

    _last: Tuple[int, Any] = (-1, None)

    def _get(self, number: int) -> Any:
        raise NotImplementedError

    def slice(self, number: int, index: int, slices: int) -> Slice:
        if self._last[0] != number:
            self._last = number, self._get(number)
        data = self._last[1]
        count = next(len(one) for one in keras.tree.flatten(data) if one is not None)
        begin, end = (count * i // slices for i in (index, index + 1))
        return keras.tree.map_structure(lambda one: None if one is None else one[begin:end], data), end - begin, count


class Batches(_Cut):
    """A keras.utils.PyDataset."""

    def __init__(self, dataset: Any, steps: Optional[int], shuffle: bool, seed: int) -> None:
        self._dataset, self._shuffle, self._seed = dataset, shuffle, seed
        batches = dataset.num_batches
        if batches is None and steps is None:
            raise UsageError("the PyDataset has no length: expected steps_per_epoch")
        self._is_endless = batches is None
        self.batches = steps if batches is None else batches  # type: ignore[assignment]
        if self.batches < 1:
            raise UsageError("the PyDataset is empty")

    def _get(self, number: int) -> Any:
        epoch, place = divmod(number, self.batches)
        if self._is_endless:
            place = number
        elif self._shuffle:
            place = int(epoch_order(self.batches, self._seed, epoch)[place])
        seed_all(seed_of(self._seed, number, 0))  # for random changes in __getitem__
        return _numbers(_as_tuple(self._dataset[place]))

    def begin_pass(self, number: int) -> None:
        seed_all(seed_of(self._seed, number, 1))
        getattr(self._dataset, "on_epoch_begin", _nothing)()

    def end_pass(self, number: int) -> None:
        seed_all(seed_of(self._seed, number, 2))
        self._dataset.on_epoch_end()
        self._last = -1, None


class Loader(Source):
    """A torch.utils.data.DataLoader."""

    def __init__(self, loader: Any, seed: int) -> None:
        from muster import _data
        source = _data.Source.of(loader)
        self._samples = _data.Samples(source.dataset, source.collate)
        self._plan = StepPlan(len(self._samples), source.batch, 1, seed, source.drop_last, source.in_order)
        self.batch, self.batches = source.batch, self._plan.steps_per_epoch
        if self.batches < 1:
            raise UsageError("the DataLoader gives no batch")

    def slice(self, number: int, index: int, slices: int) -> Slice:
        self._plan.slices = slices
        work = self._plan.slice_at(number, index)
        data = self._samples[work.seed, work.samples] if len(work.samples) else None
        return _numbers(_as_tuple(data)) if data is not None else None, len(work.samples), work.batch


class Stream(_Cut):
    """A tf.data.Dataset, which has no indices: each process goes through all of it."""

    def __init__(self, dataset: Any, steps: Optional[int], seed: int, check: Callable[[int, bytes], None]) -> None:
        import tensorflow as tf
        options = tf.data.Options()
        options.deterministic = True
        self._dataset = dataset.with_options(options)
        self._check, self._seed = check, seed
        size = int(self._dataset.cardinality())
        if size == tf.data.UNKNOWN_CARDINALITY:
            size = sum(1 for _ in self._dataset) if steps is None else steps
        self._is_endless = size == tf.data.INFINITE_CARDINALITY or steps is not None
        if self._is_endless and steps is None:
            raise UsageError("the tf.data.Dataset repeats without end: expected steps_per_epoch")
        self.batches = steps if self._is_endless and steps is not None else size
        if self.batches < 1:
            raise UsageError("the tf.data.Dataset gives no batch")
        self._iterator: Optional[Iterator[Any]] = None
        self._next = 0  # the batch that the iterator gives next
        self._first = b""  # a hash of the first batch of the pass
        self._has_begun = False  # before, the program looks at the first batch
        kinds = {type(one).__name__ for one in _stages(self._dataset)}
        # Without state, a cache or a dataset that does not shuffle gives the same batches again.
        self._has_state = any("Shuffle" in one for one in kinds) and not any("Cache" in one for one in kinds)
        self._start: Any = None  # the state of the pass's iterator at its beginning

    def _open(self, again: bool) -> None:
        """``again``: an iterator that gives the batches of the one before."""
        import tensorflow as tf
        self._iterator = iter(self._dataset)
        if not self._has_state:
            return
        handle = self._iterator._iterator_resource  # type: ignore[attr-defined]
        try:
            if not again:
                self._start = tf.raw_ops.SerializeIterator(resource_handle=handle)
            elif self._start is not None:
                tf.raw_ops.DeserializeIterator(resource_handle=handle, serialized=self._start)
        except tf.errors.OpError:  # a generator and a Python function have no state that can be read
            self._start = None

    def _get(self, number: int) -> Any:
        goes_back = number < self._next
        if self._iterator is None or goes_back:
            if goes_back and self._has_begun:
                _seed_stream(self._dataset, seed_of(self._seed, number // self.batches, 3))
            self._open(goes_back)
            self._next = 0 if self._is_endless else number - number % self.batches
        batch: Any = None
        while self._next <= number:
            batch = _numbers(_as_tuple(self._draw()))
            if self._next % self.batches == 0:
                self._begin_with(batch, goes_back)
            self._next += 1
        return batch

    def _begin_with(self, batch: Any, goes_back: bool) -> None:
        first = next(one for one in keras.tree.flatten(batch) if one is not None)
        text = b"%08x" % zlib.crc32(_bytes(first))
        if goes_back and text != self._first:
            raise UsageError("a process is late or lost, and its part of a tf.data.Dataset that shuffles cannot be "
                             "read again: expected validation data without shuffle; --resume goes on")
        self._first = text
        if self._has_begun:
            self._check(self._next, text)

    def _draw(self) -> Any:
        assert self._iterator is not None
        try:
            return next(self._iterator)
        except StopIteration:
            if not self._is_endless:
                raise UsageError(f"the tf.data.Dataset gave fewer than {self.batches} batches") from None
        self._iterator = iter(self._dataset)  # steps_per_epoch is no multiple of its length
        return next(self._iterator)

    def begin_pass(self, number: int) -> None:
        """Shuffles count their iterators, so all processes make the same ones."""
        self._has_begun = True
        if not self._is_endless:
            self._iterator, self._last = None, (-1, None)
            _seed_stream(self._dataset, seed_of(self._seed, number, 3))
            self._open(False)
            self._next = number * self.batches


def _stages(dataset: Any) -> Iterator[Any]:
    """The dataset and those that it reads from."""
    yield dataset
    for one in dataset._inputs():
        yield from _stages(one)


def _seed_stream(dataset: Any, seed: int) -> None:
    """Random layers of Keras in maps of the dataset have variables, whose values depend on what was drawn before."""
    variables: Dict[int, Any] = {}

    for stage in _stages(dataset):
        for function in stage._functions():
            for variable in function.function.graph.variables:
                if tuple(variable.shape) == (2,) and variable.dtype.is_integer:
                    variables[id(variable)] = variable
    for i, variable in enumerate(variables.values()):
        variable.assign(np.array([seed_of(seed, i, 0) & 0x7FFFFFFF, 0]).astype(variable.dtype.as_numpy_dtype))


def make(x: Any, y: Any, sample_weight: Any, *, batch: Optional[int], steps: Optional[int], shuffle: bool, seed: int,
         class_weight: Optional[Dict[int, float]] = None,
         check: Callable[[int, bytes], None] = lambda *_: None) -> Source:
    """What fit and evaluate got. ``check`` compares the first batch of a pass between processes."""
    modules = {kind.__module__.split(".")[0] for kind in type(x).__mro__}
    source: Source
    if isinstance(x, keras.utils.PyDataset):
        source = Batches(x, steps, shuffle, seed)
    elif "torch" in modules and hasattr(x, "dataset") and hasattr(x, "collate_fn"):
        source = Loader(x, seed)
    elif "tensorflow" in modules and hasattr(x, "with_options"):
        source = Stream(x, steps, seed, check)
    elif hasattr(x, "__next__"):
        raise UsageError("the training data is a generator, which cannot be read twice: expected arrays, a "
                         "keras.utils.PyDataset, a tf.data.Dataset or a torch DataLoader")
    elif x is None:
        raise UsageError("fit got no data (x=None)")
    else:
        if class_weight is not None and sample_weight is not None:
            raise UsageError("fit got class_weight and sample_weight: expected one of them")
        weights = _numbers(sample_weight) if class_weight is None else _of_classes(np.asarray(y), class_weight)
        return Arrays((_numbers(x), _numbers(y), weights), batch or 32, shuffle, seed)
    if y is not None or sample_weight is not None:
        raise UsageError(f"fit got y or sample_weight beside a {type(x).__name__}, which has them itself")
    if class_weight is not None:
        _weigh(source, class_weight)
    return source


def _weigh(source: Source, weights: Dict[int, float]) -> None:
    plain = source.slice

    def slice_(number: int, index: int, slices: int) -> Slice:
        data, count, batch = plain(number, index, slices)
        if count == 0:
            return data, count, batch
        if data[2] is not None:
            raise UsageError("fit got class_weight and data with sample weights: expected one of them")
        return (*data[:2], _of_classes(np.asarray(data[1]), weights)), count, batch

    source.slice = slice_  # type: ignore[method-assign]


def _bytes(array: np.ndarray) -> bytes:
    return repr(array.tolist()).encode() if array.dtype.hasobject else np.ascontiguousarray(array).tobytes()


def _of_classes(y: np.ndarray, weights: Dict[int, float]) -> np.ndarray:
    """As Keras: y has class numbers, or one-hot rows."""
    classes = y.argmax(-1) if y.ndim > 1 and y.shape[-1] > 1 else np.round(y).astype(np.int64)
    found = np.ones(classes.shape, np.float32)
    for one, weight in weights.items():
        found[classes == int(one)] = weight
    return found[..., 0] if found.ndim > 1 and found.shape[-1] == 1 else found


def _as_tuple(batch: Any) -> Tuple[Any, Any, Any]:
    parts: List[Any] = list(batch) if isinstance(batch, (tuple, list)) else [batch]
    if not 1 <= len(parts) <= 3:
        raise UsageError(f"a batch has {len(parts)} parts: expected x, (x, y) or (x, y, sample_weight)")
    return tuple(parts + [None] * (3 - len(parts)))  # type: ignore[return-value]


def _numbers(data: Any) -> Any:
    """NumPy arrays; floating point as Keras computes."""
    def one(value: Any) -> Any:
        if value is None:
            return None
        array = value.detach().cpu().numpy() if hasattr(value, "detach") else np.asarray(value)
        is_wide = array.dtype.kind == "f" and array.dtype.name != keras.config.floatx()
        return array.astype(keras.config.floatx()) if is_wide else array

    is_array = hasattr(data, "columns") or isinstance(data, (list, tuple)) and \
        all(isinstance(part, (int, float)) for part in data)  # a data frame, or a plain list of targets
    return one(data) if is_array else keras.tree.map_structure(one, data)


def _nothing() -> None:
    """PyDatasets of Keras before 3.11 have no on_epoch_begin."""


