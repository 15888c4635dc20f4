"""Trains in this process alone, where Muster's programs do not exist: a notebook, macOS, Windows.

The loop over the steps is that of a job with one worker, and so are the bits. There are no
checkpoints, and nothing is written.
"""

import atexit
import dataclasses
import json
import math
import os
import re
import shutil
import sys
import time
from typing import Dict, Iterator, List, Optional, Sequence, Tuple

import numpy as np

from muster import _client, _private
from muster._alone_plan import StepPlan, seed_of
from muster._alone_update import LossScale, Segment, TreeSum, Updater, check_finite
from muster._client import (ABSENT, COMPUTE, END, SLICE, STEP_END, TEST_BLOCK, UPDATE, VALIDATION_BLOCK,
                            VALUE, Client, Error, UsageError, Work)

_BLOCK = 250  # samples of an evaluation's block
_LINE = 16  # variables begin at multiples of this many floats
_MOST_SCALARS = 32
_NOTHING = np.empty(0, np.int64)
_Scalars = Dict[str, Tuple[float, int]]  # sum, samples


def make_client(config: Optional[str]) -> Client:
    """The client of a job or, if there can be none, of a run in this process alone."""
    is_launched = bool(os.environ.get("MUSTER_ENDPOINT"))
    why = None if is_launched or config is not None else _why_alone()
    if why is not None:
        print(f"muster: {why}: this process trains alone, without checkpoints", file=sys.stderr)
        os.environ.setdefault("OMP_NUM_THREADS", "1")  # as under `muster launch`, for the same bits
        return AloneClient()
    if config is not None and not is_launched and not sys.platform.startswith("linux"):
        raise UsageError("Job(config=…) starts Muster's programs, which need Linux: without a "
                         "config, this process trains alone")
    _private.ensure_job(config)
    return Client()


def _why_alone() -> Optional[str]:
    if os.environ.get("MUSTER_ALONE") == "1":
        return "MUSTER_ALONE=1"
    program = _client.programs() / "muster"
    if not program.exists() and shutil.which("muster") is None:
        return f"Muster's programs are not here (there is no {program})"
    try:
        _client._load()
    except UsageError as error:
        return f"Muster's programs are not here ({str(error).partition(':')[0]})"
    return None


class _Sums:
    """Of losses and scalars, over slices, steps or blocks, in the server's order of additions."""

    def __init__(self) -> None:
        self.loss = 0.0
        self.samples = 0
        self.scalars: _Scalars = {}

    def add(self, loss: float, samples: int, scalars: _Scalars) -> None:
        self.loss += loss
        self.samples += samples
        for name, (total, count) in scalars.items():
            if len(self.scalars) < _MOST_SCALARS or name in self.scalars:
                before, counted = self.scalars.get(name, (0.0, 0))
                self.scalars[name] = before + total, counted + count

    def means(self) -> Dict[str, float]:
        scalars = sorted(self.scalars.items())
        loss = {"loss": self.loss / self.samples} if self.samples else {}  # all steps were skipped
        return {**loss,
                **{name: total / samples for name, (total, samples) in scalars}}


class AloneClient(Client):
    """A Client whose server and worker are this object."""

    is_alone = True
    has_last_weights = True

    def __init__(self) -> None:
        self.joined = False
        self.seed = _environment("MUSTER_SEED", 1, 0, 2**64 - 1)
        self.slices = _environment("MUSTER_SLICES", 4, 1, 65536)
        self._batch = self._epochs = 0
        self._drop_last = self._in_order = False
        self._variables: List[Tuple[int, int]] = []  # begin, end
        self._names: List[str] = []
        self._segments: List[Segment] = []
        self._arenas: Optional[Tuple[np.ndarray, np.ndarray]] = None  # weights, gradient
        self._updater: Optional[Updater] = None
        self._rate = 0.0
        self._scale: Optional[LossScale] = None
        self._loss = 0.0  # what the program reported of the current work
        self._weight: Optional[float] = None
        self._scalars: _Scalars = {}
        self._values: Dict[str, bytes] = {}  # what was told
        self._stop: Optional[int] = None  # before this step
        self._is_over = False

    def add_variable(self, name: str, shape: Sequence[int], *, weight_decay: Optional[float] = None,
                     learning_rate_multiplier: float = 1, averaged: bool = False) -> int:
        if self._arenas is not None or name in self._names or min(shape, default=1) < 1:
            raise UsageError(f"variable {name} {tuple(shape)}: expected another name than before, "
                             f"positive dimensions, and a call before those for weights")
        begin = self._segments[-1].end if self._segments else 0
        count = int(np.prod(shape, dtype=np.int64))
        end = begin + (count + _LINE - 1) // _LINE * _LINE
        segment = Segment(begin, end, weight_decay, learning_rate_multiplier, averaged)
        if self._segments and self._segments[-1].settings == segment.settings:
            self._segments[-1].end = end
        else:
            self._segments.append(segment)
        self._names.append(name)
        self._variables.append((begin, begin + count))
        return len(self._names) - 1

    def _memory(self) -> Tuple[np.ndarray, np.ndarray]:
        if self._arenas is None:
            if not self._segments:
                raise UsageError("expected at least one variable, got none")
            floats = self._segments[-1].end
            self._arenas = _aligned(floats), _aligned(floats)
        return self._arenas

    def weights(self, variable: int) -> np.ndarray:
        begin, end = self._variables[variable]
        return self._memory()[0][begin:end]

    def gradient(self, variable: int) -> np.ndarray:
        begin, end = self._variables[variable]
        return self._memory()[1][begin:end]

    def set_optimizer(self, text: str, learning_rate: float) -> None:
        self._updater = Updater(text)
        self.is_updater = self._updater.type == "PROGRAM"
        self.set_learning_rate(learning_rate)

    def set_learning_rate(self, learning_rate: float) -> None:
        if not math.isfinite(learning_rate) or learning_rate < 0:
            raise UsageError(f"the learning rate: expected 0 or more, got {learning_rate}")
        self._rate = float(learning_rate)

    def set_run(self, batch: int, epochs: int) -> None:
        self._batch, self._epochs = batch, epochs

    def set_drop_last(self, drop_last: bool) -> None:
        self._drop_last = drop_last

    def set_in_order(self, in_order: bool) -> None:
        self._in_order = in_order

    def set_loss_scaling(self, on: bool) -> None:
        self._scale = LossScale() if on else None

    def set_arithmetic(self, text: str) -> None:
        pass

    def set_fingerprint(self, fingerprint: int) -> None:
        pass

    def join(self, training: int, validation: int, test: int) -> None:
        if self._updater is None:
            raise UsageError("the program names no optimizer: start it by `muster launch`, whose "
                             "config has one")
        if not self._batch or not self._epochs:
            raise UsageError("the program does not say how large a batch is, or how long to train: "
                             "expected `for epoch in job.epochs(10)`, or Job(batch_size=256, epochs=10)")
        if training < 1 or self._drop_last and training < self._batch:
            raise UsageError(f"every epoch would be empty: there are {training} training samples")
        self._plan = StepPlan(training, self._batch, self.slices, self.seed, self._drop_last,
                              self._in_order)
        self._sizes = {VALIDATION_BLOCK: validation, TEST_BLOCK: test}
        self.rank = self.first_step = 0
        self.steps_per_epoch = self._plan.steps_per_epoch
        self.total_steps = self._epochs * self.steps_per_epoch
        self._memory()
        self._tree = TreeSum()
        self._epoch = _Sums()
        self._means: Dict[str, float] = {}  # of the last epoch that has ended
        self._samples = 0  # of all steps so far
        self._began = time.monotonic()
        self._now: Optional[Work] = None
        self._works = self._run()
        self.joined = True
        atexit.register(_at_exit, self)

    def next(self) -> Work:
        self._now = next(self._works)
        self._scalars = {}
        self._weight = None
        return self._now

    def plan(self, step: int, index: int) -> Work:
        return self._plan.slice_at(step, index)

    def _run(self) -> Iterator[Work]:
        step = evaluated = 0
        while step < self.total_steps and self._stop is None:
            yield from self._train(step)
            if self._stop == step:  # within the step, which does not count
                break
            step += 1
            yield _work(STEP_END, step - 1)
            if step % self.steps_per_epoch == 0 and step < self.total_steps:
                yield from self._evaluate(step, is_last=False)
                evaluated = step
        if evaluated < step:
            yield from self._evaluate(step, is_last=True)
        self._tell_end(step)
        while True:
            yield _work(END, step)

    def _train(self, step: int) -> Iterator[Work]:
        sums = _Sums()
        weight: Optional[float] = None
        weights, gradient = self._memory()
        scale = self._scale.value if self._scale else 1.0
        for index in range(self.slices):
            work = dataclasses.replace(self._plan.slice_at(step, index), loss_scale=scale)
            if len(work.samples):
                yield work
                sums.add(self._loss, len(work.samples), self._scalars)
                if self._weight is not None:
                    weight = (weight or 0.0) + self._weight
            self._tree.add(index, gradient if len(work.samples) else None)
            if self._stop is not None:
                return
        total = self._tree.take()
        _weigh(self._segments, total, weight, scale)
        if weight is not None:
            sums.loss = sums.loss / weight * sums.samples if weight else 0.0
        self._samples += sums.samples
        is_skipped = self._scale is not None and self._scale.skips(total)
        if not is_skipped:
            self._epoch.add(sums.loss, sums.samples, sums.scalars)
        if (step + 1) % self.steps_per_epoch == 0:
            self._means, self._epoch = self._epoch.means(), _Sums()
            self._values[f"epoch:{step + 1}"] = json.dumps(self._means).encode()
        assert self._updater is not None
        if is_skipped:
            return
        if not self.is_updater:
            self._updater.update(weights, total, self._segments, self._rate)
            return
        np.copyto(gradient, total)
        check_finite(gradient)
        for one in self._segments:
            if one.averaged:
                weights[one.begin:one.end] = gradient[one.begin:one.end]
        yield Work(UPDATE, step, work.epoch, 0, _NOTHING, work.batch,
                   seed_of(self.seed, UPDATE, step))
        check_finite(weights)

    def _evaluate(self, steps: int, is_last: bool) -> Iterator[Work]:
        """The validation set if there is one; at the end of the run the test set, too."""
        sets = [kind for kind in (VALIDATION_BLOCK, TEST_BLOCK) if self._sizes[kind] > 0]
        for kind in sets if is_last else sets[:1]:
            sums = _Sums()
            for index, begin in enumerate(range(0, self._sizes[kind], _BLOCK)):
                samples = np.arange(begin, min(begin + _BLOCK, self._sizes[kind]), dtype=np.int64)
                seed = seed_of(self.seed, kind, steps, index)
                yield Work(kind, steps, 0, index, samples, 0, seed)
                sums.add(self._loss, len(samples), self._scalars)
            means = sums.means()
            epoch = self._samples / self._plan.samples_per_epoch
            name = "validation" if kind == VALIDATION_BLOCK else "test"
            print(f"evaluation  epoch {epoch:.2f}  step {steps:,}  {name} loss "
                  f"{means.pop('loss'):.4f}{_text(means)}", flush=True)

    def _tell_end(self, steps: int) -> None:
        self._is_over = True
        means = dict(self._means)
        loss = f"  training loss {means.pop('loss'):.4f}" if "loss" in means else ""
        print(f"Completed: {steps:,} steps, {self._samples:,} samples in "
              f"{time.monotonic() - self._began:.1f} s{loss}{_text(means)}", flush=True)

    def add_scalar(self, name: str, total: float) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_./-]{1,64}", name) or name in self._scalars:
            raise UsageError(f"value {name}: expected another name than before, of 1 to 64 "
                             f"characters of A-Z a-z 0-9 _ . / -")
        assert self._now is not None
        self._scalars[name] = float(total), len(self._now.samples)

    def set_weight(self, weight: float) -> None:
        if not math.isfinite(weight) or weight < 0:
            raise UsageError(f"the weight of a loss: expected 0 or more, got {weight}")
        self._weight = float(weight)

    def report(self, loss: float) -> None:
        work = self._now
        if work is not None and work.kind == SLICE and not math.isfinite(loss):
            raise Error(f"the loss of slice {work.index} is {loss} at step {work.step + 1}: try a "
                        f"smaller learning rate")
        self._loss = float(loss)

    def push(self, variable: int) -> None:
        pass

    def save(self, state: bytes) -> None:
        pass

    def state(self) -> bytes:
        return b""

    def done(self) -> None:
        pass  # the next work takes what was written

    def ask(self, key: str, step: int, may_compute: bool) -> Tuple[int, bytes]:
        if key in self._values:
            return VALUE, self._values[key]
        return (COMPUTE if may_compute else ABSENT), b""

    def tell(self, key: str, step: int, value: bytes) -> None:
        if key.startswith("bits:") and key not in self._values:
            print(f"muster: {key[5:]}: {value.decode(errors='replace')}: other runs may have other bits",
                  file=sys.stderr)
        if self._values.setdefault(key, value) != value and not key.startswith("bits:"):
            raise Error(f"another value was told before for {key}")
        if key == "stop":
            self._stop = step

    def fail(self, message: str) -> None:
        pass  # this process has told it


def _environment(name: str, default: int, least: int, most: int) -> int:
    text = os.environ.get(name) or str(default)
    if not text.isdecimal() or not least <= int(text) <= most:
        raise UsageError(f"{name}={text}: expected a whole number from {least} to {most}")
    return int(text)


def _aligned(floats: int) -> np.ndarray:
    """Zeros at a multiple of 64 bytes, as in a job: kernels may depend on it."""
    raw = np.zeros(floats + _LINE, np.float32)
    begin = -raw.ctypes.data % 64 // 4
    return raw[begin:begin + floats]


def _work(kind: int, step: int) -> Work:
    return Work(kind, step, 0, 0, _NOTHING, 0, 0)


def _text(means: Dict[str, float]) -> str:
    return "".join(f"  {name} {value:.4g}" if math.isfinite(value) else f"  {name} not finite"
                   for name, value in means.items())


def _weigh(segments: List[Segment], total: np.ndarray, weight: Optional[float], scale: float) -> None:
    """Divides by the loss scale, and the gradient by the sum of weights; running statistics count by
    samples."""
    weigh = np.float32(1 if weight is None else 1 / weight if weight else 0)
    for one in segments:
        factor = np.float32(1 / scale) * (np.float32(1) if one.averaged else weigh)
        if factor != 1:
            total[one.begin:one.end] *= factor


def _at_exit(client: AloneClient) -> None:
    if client._is_over:
        return
    if client._stop is not None:
        return client._tell_end(client._stop)
    print("muster: the program ended before its run", file=sys.stderr)
