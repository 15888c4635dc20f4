"""libmuster_client.so (client/muster.h) as a Python class."""

import ctypes
import dataclasses
import os
import pathlib
import sys
from ctypes import (POINTER, byref, c_char_p, c_double, c_float, c_int, c_int64, c_size_t, c_uint64,
                    c_void_p)
from typing import Callable, ClassVar, NoReturn, Optional, Sequence, Tuple

import numpy as np

OK, FAILURE, USAGE, AGAIN = 0, 1, 2, -1
VALUE, COMPUTE, ABSENT, _GIVE_STATE = range(4)
_MAY_COMPUTE, _MAY_SAVE = 1, 2
_QUESTION = b"muster: state at the question"  # before its key and the state
SLICE, STEP_END, TEST_BLOCK, VALIDATION_BLOCK, END, UPDATE, SAVE = range(7)


class Error(RuntimeError):
    """The job cannot go on. ``code`` is the exit code that Muster's programs use."""

    def __init__(self, message: str, code: int = FAILURE) -> None:
        super().__init__(message)
        self.code = code


class UsageError(Error):
    """A wrong call, config or model."""

    last: "ClassVar[Optional[UsageError]]" = None  # the program may have caught it

    def __init__(self, message: str) -> None:
        super().__init__(message, USAGE)
        UsageError.last = self


@dataclasses.dataclass(frozen=True)
class Work:
    """A slice of a step, a block of an evaluation, or an update."""

    kind: int
    step: int
    epoch: int
    index: int  # of the slice in its step, or of the block in its set
    samples: np.ndarray  # int64, their indices in the set
    batch: int  # samples of the whole step
    seed: int  # the same in every process that gets this work
    loss_scale: float = 1.0  # of a slice: a factor of its gradient, not of the reported loss


class _Work(ctypes.Structure):
    _fields_ = [("kind", c_int), ("step", c_int64), ("epoch", c_int64), ("index", c_int64),
                ("count", c_int64), ("samples", POINTER(c_int64)), ("batch", c_int64),
                ("seed", c_uint64), ("loss_scale", c_double)]


class _Answer(ctypes.Structure):
    _fields_ = [("kind", c_int), ("value", c_void_p), ("bytes", c_size_t)]


class _Options(ctypes.Structure):
    _fields_ = [("has_weight_decay", c_int), ("weight_decay", c_float),
                ("has_learning_rate_multiplier", c_int), ("learning_rate_multiplier", c_float),
                ("is_averaged", c_int)]


def programs() -> pathlib.Path:
    """The folder of muster, muster-server and muster-worker."""
    given = os.environ.get("MUSTER_PROGRAMS")
    return pathlib.Path(given) if given else pathlib.Path(__file__).parent / "bin"


_functions = {
    "muster_create": (c_void_p, []),
    "muster_error": (c_char_p, [c_void_p]),
    "muster_add_variable": (c_int, [c_void_p, c_char_p, POINTER(c_int64), c_int,
                                    POINTER(_Options)]),
    "muster_set_optimizer": (c_int, [c_void_p, c_char_p, c_double]),
    "muster_set_learning_rate": (c_int, [c_void_p, c_double]),
    "muster_set_run": (c_int, [c_void_p, c_int64, c_int64]),
    "muster_set_drop_last": (c_int, [c_void_p, c_int]),
    "muster_set_in_order": (c_int, [c_void_p, c_int]),
    "muster_set_loss_scaling": (c_int, [c_void_p, c_int]),
    "muster_set_arithmetic": (c_int, [c_void_p, c_char_p]),
    "muster_set_fingerprint": (None, [c_void_p, c_uint64]),
    "muster_weights": (c_void_p, [c_void_p, c_int]),
    "muster_gradient": (c_void_p, [c_void_p, c_int]),
    "muster_join": (c_int, [c_void_p, c_int64, c_int64, c_int64]),
    "muster_rank": (c_int64, [c_void_p]),
    "muster_first_step": (c_int64, [c_void_p]),
    "muster_total_steps": (c_int64, [c_void_p]),
    "muster_steps_per_epoch": (c_int64, [c_void_p]),
    "muster_slices": (c_int64, [c_void_p]),
    "muster_next": (c_int, [c_void_p, c_double, POINTER(_Work)]),
    "muster_plan": (c_int, [c_void_p, c_int64, c_int64, POINTER(_Work)]),
    "muster_add_scalar": (c_int, [c_void_p, c_char_p, c_double]),
    "muster_set_weight": (c_int, [c_void_p, c_double]),
    "muster_report": (c_int, [c_void_p, c_double]),
    "muster_push": (c_int, [c_void_p, c_int]),
    "muster_save": (c_int, [c_void_p, c_char_p, c_size_t]),
    "muster_state": (c_void_p, [c_void_p, POINTER(c_size_t)]),
    "muster_done": (c_int, [c_void_p]),
    "muster_ask": (c_int, [c_void_p, c_char_p, c_int64, c_int, c_double, POINTER(_Answer)]),
    "muster_tell": (c_int, [c_void_p, c_char_p, c_int64, c_char_p, c_size_t]),
    "muster_fail": (c_int, [c_void_p, c_char_p]),
    "muster_has_last_weights": (c_int, [c_void_p]),
}
_library: Optional[ctypes.CDLL] = None


def _load() -> ctypes.CDLL:
    global _library
    if _library is not None:
        return _library
    name = "libmuster_client.so"
    places = [pathlib.Path(__file__).parent / "lib" / name, programs().parent / "lib" / name]
    found = next((place for place in places if place.exists()), None)
    try:
        library = ctypes.CDLL(str(found or name))
    except OSError as error:
        raise UsageError(
            f"{name} was not found in {', '.join(str(place.parent) for place in places)}: build "
            f"it with scripts/build.sh, install the package muster-train, or set MUSTER_PROGRAMS to the folder of "
            f"Muster's programs"
        ) from error
    for function, (result, arguments) in _functions.items():
        one = getattr(library, function)
        one.restype, one.argtypes = result, arguments
    _library = library
    return library


if "MUSTER_UPDATE_FD" in os.environ:
    _load()  # so that processes that the program starts from now on do not ignore signals to stop


class Client:
    """A job of client/muster.h. Used by one thread.

    It lives as long as the process, because the program's arrays are in its memory.
    """

    is_alone = False  # whether it has no server (_alone.py)
    is_updater = False  # whether a process that has slices updates the weights, too (_alone.py)

    def __init__(self) -> None:
        self._library = _load()
        self._job = self._library.muster_create()
        if not self._job:
            raise MemoryError
        self._counts: list[int] = []
        self.joined = False
        self._give: Optional[Callable[[], None]] = None
        self._asked = self._question = ""  # that the state to give, or to restore, belongs to
        self.has_state = False  # the program has restored it, or a new run has begun

    @property
    def has_last_weights(self) -> bool:
        return bool(self._library.muster_has_last_weights(self._job))

    def add_variable(self, name: str, shape: Sequence[int], *, weight_decay: Optional[float] = None,
                     learning_rate_multiplier: float = 1, averaged: bool = False) -> int:
        options = _Options(weight_decay is not None, weight_decay or 0, 1, learning_rate_multiplier,
                           averaged)
        sizes = (c_int64 * len(shape))(*shape)
        number: int = self._library.muster_add_variable(self._job, name.encode(), sizes, len(shape),
                                                   byref(options))
        if number < 0:
            self._raise(USAGE)
        self._counts.append(int(np.prod(shape, dtype=np.int64)))
        return number

    def weights(self, variable: int) -> np.ndarray:
        return self._array(self._library.muster_weights(self._job, variable), variable)

    def gradient(self, variable: int) -> np.ndarray:
        return self._array(self._library.muster_gradient(self._job, variable), variable)

    def _array(self, address: Optional[int], variable: int) -> np.ndarray:
        if address is None:
            self._raise(FAILURE)
        pointer = ctypes.cast(address, POINTER(c_float))
        return np.ctypeslib.as_array(pointer, (self._counts[variable],))

    def set_optimizer(self, text: str, learning_rate: float) -> None:
        self._check(self._library.muster_set_optimizer(self._job, text.encode(), learning_rate))

    def set_learning_rate(self, learning_rate: float) -> None:
        self._check(self._library.muster_set_learning_rate(self._job, learning_rate))

    def set_run(self, batch: int, epochs: int) -> None:
        self._check(self._library.muster_set_run(self._job, batch, epochs))

    def set_drop_last(self, drops: bool) -> None:
        self._check(self._library.muster_set_drop_last(self._job, drops))

    def set_in_order(self, in_order: bool) -> None:
        self._check(self._library.muster_set_in_order(self._job, in_order))

    def set_loss_scaling(self, on: bool) -> None:
        """The program multiplies gradients by Work.loss_scale. Off: there is one only if the config says so."""
        self._check(self._library.muster_set_loss_scaling(self._job, on))

    def set_arithmetic(self, text: str) -> None:
        self._check(self._library.muster_set_arithmetic(self._job, text.encode()))

    def set_fingerprint(self, fingerprint: int) -> None:
        self._library.muster_set_fingerprint(self._job, fingerprint)

    def join(self, training: int, validation: int, test: int) -> None:
        self._check(self._library.muster_join(self._job, training, validation, test))
        library = self._library
        self.joined = True
        self.rank: int = library.muster_rank(self._job)
        self.first_step: int = library.muster_first_step(self._job)
        self.total_steps: int = library.muster_total_steps(self._job)
        self.steps_per_epoch: int = library.muster_steps_per_epoch(self._job)
        self.slices: int = library.muster_slices(self._job)

    def next(self) -> Work:
        work = _Work()
        # Signals interrupt a limited wait, so that Ctrl-C is handled at once.
        while (code := self._library.muster_next(self._job, 1.0, byref(work))) == AGAIN:
            pass
        self._check(code)
        return self._work(work)

    def plan(self, step: int, index: int) -> Work:
        work = _Work()
        self._check(self._library.muster_plan(self._job, step, index, byref(work)))
        return self._work(work)

    @staticmethod
    def _work(work: _Work) -> Work:
        samples = np.empty(0, np.int64)
        if work.count > 0:
            samples = np.ctypeslib.as_array(work.samples, (work.count,)).copy()
        return Work(work.kind, work.step, work.epoch, work.index, samples, work.batch, work.seed,
                    work.loss_scale)

    def add_scalar(self, name: str, total: float) -> None:
        self._check(self._library.muster_add_scalar(self._job, name.encode(), total))

    def set_weight(self, weight: float) -> None:
        self._check(self._library.muster_set_weight(self._job, weight))

    def report(self, loss: float) -> None:
        self._check(self._library.muster_report(self._job, loss))

    def push(self, variable: int) -> None:
        self._check(self._library.muster_push(self._job, variable))

    def save(self, state: bytes) -> None:
        if self._asked:
            state = b"\0".join((_QUESTION, self._asked.encode(), state))
        self._check(self._library.muster_save(self._job, state, len(state)))

    def state(self) -> bytes:
        size = c_size_t()
        address = self._library.muster_state(self._job, byref(size))
        state = ctypes.string_at(address, size.value) if address else b""
        return state.split(b"\0", 2)[2] if state.startswith(_QUESTION) else state

    def answer_with_state(self, give: Callable[[], None], take: Callable[[], None]) -> None:
        """In the process that updates, which gives its state also while it waits for a value, because the code after
        it may last or fail. ``give`` calls save and done; ``take`` restores the state when the program is at the same
        question again. After join."""
        self._give, self._take = give, take
        size = c_size_t()
        address = self._library.muster_state(self._job, byref(size))
        begin = ctypes.string_at(address, min(size.value, 512)) if address else b""
        self._question = begin.split(b"\0", 2)[1].decode() if begin.startswith(_QUESTION) else ""

    def done(self) -> None:
        self._check(self._library.muster_done(self._job))

    def ask(self, key: str, step: int, may_compute: bool) -> Tuple[int, bytes]:
        """The value that all processes get (VALUE), or what to do without one."""
        answer = _Answer()
        if key == self._question:
            self._question = ""
            self._take()
        may = (_MAY_COMPUTE if may_compute else 0) | (_MAY_SAVE if self.has_state else 0)
        while (code := self._library.muster_ask(self._job, key.encode(), step, may, 1.0, byref(answer))) == AGAIN or \
                code == OK and answer.kind == _GIVE_STATE:
            if code == OK and self._give is not None:
                self._asked = key
                self._give()
                self._asked = ""
        self._check(code)
        return answer.kind, ctypes.string_at(answer.value, answer.bytes)

    def tell(self, key: str, step: int, value: bytes) -> None:
        self._check(self._library.muster_tell(self._job, key.encode(), step, value, len(value)))

    def fail(self, message: str) -> None:
        if self.joined:
            self._library.muster_fail(self._job, message.encode())

    def _check(self, code: int) -> None:
        if code != OK:
            self._raise(code)

    def _raise(self, code: int) -> NoReturn:
        message = self._library.muster_error(self._job).decode(errors="replace")
        if code == USAGE:
            raise UsageError(message)
        if code == FAILURE:
            raise Error(message)
        # The job has ended elsewhere. A traceback of this process would explain nothing.
        print(f"muster: {message}", file=sys.stderr)
        raise SystemExit(code)
