"""Computes a slice twice and compares: the same slice must have the same loss and gradient whenever and
wherever it is computed. Otherwise the bits of a run depend on the number of processes."""

import dataclasses
import zlib
from typing import Any, Dict, Iterator, Optional, Tuple

from muster import _client
from muster._client import Client, UsageError, Work

_EVERY = 1000  # steps: all processes compute slice 0


class Repeat:
    """The slices that one process computes twice: one of its first step, and slice 0 of every
    1000th step, which all processes compute."""

    def __init__(self, client: Client, compares: bool) -> None:
        self._client = client
        self._compares = compares
        self._is_first = True
        self._slice: Optional[Tuple[int, int]] = None  # step, index
        self._before: Dict[str, Any] = {}

    def due(self, work: Optional[Work], must: bool) -> Optional[Work]:
        """The slice to compute first, if the next work is this. ``must``: even without comparison."""
        if work is None or work.kind != _client.SLICE or not (self._compares or must):
            return None
        is_common = work.step % _EVERY == 0
        if self._slice == (work.step, 0) or not (is_common or self._is_first):
            return None
        self._is_first = False
        planned = self._client.plan(work.step, 0 if is_common else work.index)
        return dataclasses.replace(planned, loss_scale=work.loss_scale)

    def first(self, work: Work, loss: float, contents: Iterator[Tuple[str, Any]]) -> None:
        if not self._compares:
            return
        self._slice = work.step, work.index
        self._before = _fingerprint(loss, contents)
        if work.step % _EVERY == 0:
            gradient = zlib.crc32(repr(sorted(self._before.items())).encode())
            self._client.tell(f"now:loss and gradient of slice {work.index} in step {work.step + 1}", work.step,
                              f"{loss!r}, {gradient:08x}".encode())

    def is_second(self, work: Work) -> bool:
        return self._slice == (work.step, work.index)

    def second(self, work: Work, loss: float, contents: Iterator[Tuple[str, Any]]) -> None:
        if not self.is_second(work):
            return
        for name, now in _fingerprint(loss, contents).items():
            if now != self._before[name]:
                what = f"{name} was {self._before[name]} and then {now}" if name == "the loss" else \
                    f"the gradient of {name} differs"
                raise UsageError(
                    f"the same slice was computed twice with different results ({what}), so the run would "
                    f"depend on the number of processes: something is kept from slice to slice (a counter, "
                    f"a running value, a generator of its own for random numbers, tf.random), or an operation is "
                    f"not deterministic (torch.use_deterministic_algorithms). In TensorFlow, use keras.random with "
                    f"a SeedGenerator; Job(repeat=False) of muster.torch goes on without this check")
        self._before = {}


def _fingerprint(loss: float, contents: Iterator[Tuple[str, Any]]) -> Dict[str, Any]:
    found: Dict[str, Any] = {"the loss": repr(loss)}
    found.update((name, zlib.crc32(memoryview(array).cast("B"))) for name, array in contents)
    return found
