"""Values that one process computes and all processes have: those that join later and those of a
resumed run, too. The server keeps them."""

import contextlib
import dis
import io
import json
import math
import os
import random
import sys
from typing import Any, Callable, Dict, List, Tuple

import numpy as np

from muster import _client
from muster._client import Client, UsageError


_MOST_PRINTED = 16384  # characters of a call of once


class Epoch(int):
    """One epoch of a job: a number, as in a loop over range().

    ``is_missed`` is true if this process lacks the weights of this moment: it joined later, or the
    run was resumed later. The body of the loop over epochs runs nevertheless, so that schedulers
    and the program's own variables are right. Then the model cannot be used, except in once and
    save.
    """

    _shared: "Shared"

    @classmethod
    def of(cls, value: int, number: int, end: int, shared: "Shared",
           is_missed: Callable[[], bool]) -> "Epoch":
        """``number`` counts from 0; ``end``: the steps completed at its end."""
        epoch = cls(value)
        epoch.number, epoch._end, epoch._shared, epoch._missed = number, end, shared, is_missed
        epoch._means = {}
        return epoch

    number: int
    _end: int
    _missed: Callable[[], bool]
    _means: Dict[str, float]

    def __reduce__(self) -> Tuple[Any, ...]:
        return int, (int(self),)  # in a checkpoint it is a number

    @property
    def is_missed(self) -> bool:
        return self._missed()

    @property
    def loss(self) -> float:
        """The mean training loss of the epoch's samples, when its batches are done."""
        return self.mean("loss")

    def mean(self, name: str) -> float:
        """The mean of a value that backward reported in this epoch. The same in every process."""
        if not self._means:
            if self._shared.is_left:
                return math.nan  # the server ended the run within this epoch
            if self._shared.position < self._end:
                raise UsageError(f"epoch {self} has no mean of {name} yet: expected a call after the "
                                 f"loop over its batches")
            self._means = self._shared.wait(f"epoch:{self._end}", self._end)
        if name not in self._means:
            raise UsageError(f"epoch {self} has no mean of {name}: expected one of "
                             f"{', '.join(self._means) or 'none, because all steps were skipped'}")
        return self._means[name]


class Shared:
    """Asks for values and tells them. Names are those of a place in the program: the number of steps
    before it, and how many values of this name it asked for since."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.position = 0  # the steps that the program has behind it
        self._asked: Dict[str, int] = {}  # names at this position
        self.is_left = False  # the server has ended the run, so all that have the weights compute

    def move_to(self, position: int) -> None:
        if position != self.position:
            self.position, self._asked = position, {}

    def calls(self) -> str:
        """Those at this position, in no order."""
        return ", ".join(sorted(name if count == 1 else f"{name} ({count} times)"
                                for name, count in self._asked.items()))

    def key(self, kind: str, name: str) -> str:
        """Of the next value of this name."""
        count = self._asked[name] = self._asked.get(name, 0) + 1
        return f"{kind}:{self.position}.{count}:{name}".encode()[:256].decode(errors="ignore")

    def once(self, name: str, compute: Callable[[], Any], may_compute: bool) -> Any:
        """The value of this call, which one process that may compute it does compute."""
        if self.is_left:
            return json.loads(self._compute(name, compute))[0]
        key = self.key("once", name)
        kind, value = self._client.ask(key, self.position, may_compute)
        if kind == _client.ABSENT:
            raise UsageError(f"the run has no value of {name} after step {self.position}, which is past: a "
                             f"program that resumes a run, or replaces a lost process, must call once "
                             f"and save as the program before did")
        if kind == _client.COMPUTE:
            value = self._compute(name, compute)
            self._client.tell(key, self.position, value)
        result, printed = json.loads(value)
        if printed and self._client.rank == 0:
            print(printed, end="", flush=True)
        return result

    def _compute(self, name: str, compute: Callable[[], Any]) -> bytes:
        """What the function prints goes to rank 0, whose output the terminal shows."""
        if self._client.rank == 0:
            return _encode(name, [compute(), ""])
        with contextlib.redirect_stdout(io.StringIO()) as output:
            result = compute()
        print(output.getvalue(), end="", flush=True)
        return _encode(name, [result, output.getvalue()[-_MOST_PRINTED:]])

    def wait(self, key: str, step: int) -> Any:
        kind, value = self._client.ask(key, step, False)
        if kind != _client.VALUE:
            raise UsageError(f"the run has no means of the epoch that ended with step {step}: an earlier version of "
                             f"Muster began it")
        return json.loads(value)


class Quiet:
    """What a process goes through a second time prints nothing: the processes that had it have printed it."""

    def __init__(self) -> None:
        self._output: Any = None  # sys.stdout, meanwhile

    @property
    def is_on(self) -> bool:
        return self._output is not None

    def set(self, is_on: bool, until: str = "") -> None:
        if is_on == self.is_on:
            return
        if is_on:
            print(f"muster: this process goes through what the run has done before{until}, without batches and output",
                  flush=True)
            self._output, sys.stdout = sys.stdout, open(os.devnull, "w")
        else:
            sys.stdout.close()
            sys.stdout, self._output = self._output, None


def _encode(name: str, value: Any) -> bytes:
    try:
        text = json.dumps(value, default=_number).encode()
    except (TypeError, ValueError) as error:
        raise UsageError(f"once: {name} returned what cannot be sent to the other processes: {error}; "
                         f"expected numbers, texts, lists and dictionaries") from None
    if len(text) > 65536:
        raise UsageError(f"once: {name} returned {len(text)} bytes: expected at most 65536; write larger "
                         f"results to a file")
    return text


def _number(value: Any) -> Any:
    """For tensors and arrays of one element, and NumPy's numbers."""
    if getattr(value, "ndim", None) == 0 or getattr(value, "size", None) == 1 or \
            callable(getattr(value, "numel", None)) and value.numel() == 1:
        return value.item()
    raise TypeError(f"a {type(value).__name__}")


def assigned_outside(function: Any) -> List[str]:
    """Variables that the function assigns by `global` or `nonlocal`."""
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    if code is None:
        return []
    return sorted({one.argval for one in dis.get_instructions(code) if one.opname == "STORE_GLOBAL"
                   or one.opname == "STORE_DEREF" and one.argval in code.co_freevars})


class Generators:
    """Those of Python and NumPy, as they were when muster was imported."""

    def __init__(self) -> None:
        self._states = self._read()

    def seed_untouched(self, seed: int) -> None:
        """Seeds those that the program has neither seeded nor used. Otherwise two runs of a program
        that does not seed would differ."""
        python, numpy = self._read()
        if python == self._states[0]:
            random.seed(seed)
        if numpy == self._states[1]:
            np.random.seed(seed & 0xFFFFFFFF)

    @staticmethod
    def _read() -> Tuple[Any, Any]:
        kind, keys, *rest = np.random.get_state()  # type: ignore[misc]
        return random.getstate(), (kind, bytes(keys), *rest)


def run_seed() -> int:
    return int(os.environ.get("MUSTER_SEED", "1"))


def seed_torch(torch: Any) -> None:
    """When muster.torch is imported: models are often made before the job. PyTorch begins with a random
    seed of 53 bits, so a small one is the program's choice."""
    if torch.initial_seed() >= 1 << 32:
        torch.manual_seed(run_seed() & 0x7FFFFFFFFFFFFFFF)


generators = Generators()
