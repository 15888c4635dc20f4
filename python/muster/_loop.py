"""The loop of a plain PyTorch script, over epochs and batches, around the steps of a job."""

import contextlib
import functools
import io
import json
import zlib
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

import torch
from torch.utils.data import DataLoader

from muster import _client, _data
from muster._client import UsageError
from muster._job import Step, Steps, seed_all
from muster._script import take_calls
from muster._shared import Epoch, Quiet


class TrainLoader:
    """The training DataLoader of a job. A loop over it is one epoch: this process's slices of each
    batch. ``len`` is the number of steps; ``step`` counts them from 0, and so does
    ``loader.enumerate()``, because the body of the loop runs once per slice."""

    def __init__(self, loop: "Loop", loader: "DataLoader[Any]") -> None:
        self._loop = loop
        self._loader = loader

    def __len__(self) -> int:
        return self._loop.steps_per_epoch()

    def __iter__(self) -> Iterator[Any]:
        return self._loop.slices()

    @property
    def step(self) -> int:
        return self._loop.step

    def enumerate(self, start: int = 0) -> Iterator[Tuple[int, Any]]:
        """As enumerate() of a plain loader: the number of the step in the epoch, and a slice of it."""
        return ((start + self.step, data) for data in self)

    def __getattr__(self, name: str) -> Any:  # dataset, batch_size, sampler and the like
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._loader, name)


class _Scheduler:
    """Takes the calls of a scheduler in the body of the loop, which are per slice: the scheduler makes
    a step when the step is complete. Between epochs it makes one at once."""

    def __init__(self, loop: "Loop", scheduler: Any) -> None:
        self.scheduler = scheduler
        self.calls = 0  # in the current body
        kind = type(scheduler)
        self.plain = functools.partial(kind.step, scheduler)

        def step(_: Any, *args: Any, **kwargs: Any) -> Any:
            if loop.job._work is None:
                return self.plain(*args, **kwargs)
            if args or kwargs:
                raise UsageError(f"{kind.__name__}.step got arguments within the loop over batches: "
                                 f"expected none, because the body runs once per slice and the call counts "
                                 f"once per step; or call it between epochs")
            self.calls += 1

        # In the class, because state_dict has what is in the object.
        scheduler.__class__ = type(kind.__name__, (kind,), {"step": step})


class Loop:
    """Owned by the job. ``prepared``: what the program gets for its optimizer, loaders, schedulers."""

    def __init__(self, job: Any, optimizer: Any, given: Sequence[Any]) -> None:
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise UsageError(f"prepare got {type(optimizer).__name__} as optimizer, and a loader: expected one "
                             f"torch.optim.Optimizer. For several optimizers, such as a GAN's, leave out the "
                             f"loader, and use job.steps (docs/OWN_MODEL.md)")
        self.job = job
        self.step = 0  # of the epoch
        self._loader: Optional[TrainLoader] = None
        self._schedulers: List[_Scheduler] = []
        self.prepared = [one if one is optimizer else self._prepare(one) for one in given]
        if self._loader is None:
            raise UsageError("prepare got no DataLoader: expected prepare(model, optimizer, loader, scheduler)")
        _data.Source.of(self._loader._loader)  # checks
        self._calls: Optional[List[int]] = None  # of each scheduler in a step
        self._steps: Optional[Iterator[Step]] = None
        self._per_epoch: int = 0
        self._total: int = 0
        self._epoch: Optional[Epoch] = None
        self.is_open: bool = False  # an epoch whose batches have not begun
        self.is_inside: bool = False  # the loop over batches
        self._has_left: bool = False  # it, by break
        self._has_epochs: bool = False  # the loop over epochs has begun
        self._left_epochs: bool = False  # by break
        self._quiet: Quiet = Quiet()
        take_calls(job)

    def _prepare(self, one: Any) -> Any:
        if isinstance(one, DataLoader):
            if self._loader is not None:
                return one  # of a test set
            self._loader = TrainLoader(self, one)
            return self._loader
        if not (callable(getattr(one, "step", None)) and hasattr(one, "optimizer")):
            raise UsageError(f"prepare got {type(one).__name__}: expected a torch.utils.data.DataLoader or a "
                             f"scheduler of the learning rate")
        self._schedulers.append(_Scheduler(self, one))
        return one

    @property
    def cycles_momentum(self) -> bool:
        """Whether a scheduler changes more than learning rates, which the server could not apply."""
        return any(getattr(one.scheduler, "cycle_momentum", False) for one in self._schedulers)

    @property
    def is_between(self) -> bool:
        """Whether the program is in the loop over epochs, but in no loop over batches."""
        return self._epoch is not None and not self.is_inside and not self.job._is_over

    def steps_per_epoch(self) -> int:
        """Before the job is joined, as the program's own batch gives it."""
        assert self._loader is not None
        return self.job.steps_per_epoch if self._steps is not None else len(self._loader._loader)

    def must_repeat(self) -> bool:
        """Whether the server must learn from this process how often a step calls schedulers, before
        the step's first gradient: processes that join later need it."""
        return bool(self._schedulers) and self._calls is None

    def join(self) -> None:
        if self._steps is not None:
            return
        assert self._loader is not None
        steps: Steps = self.job.steps(self._loader._loader)
        self._steps = iter(steps)
        self._per_epoch, self._total = self.job.steps_per_epoch, self.job.total_steps

    # ------------------------------------------------------------------------------------ epochs

    def epochs(self, *bounds: int) -> Iterator[Epoch]:
        numbers = range(*bounds) if bounds else None
        if numbers is not None and len(numbers) == 0:
            raise UsageError(f"job.epochs{bounds}: expected at least one epoch")
        if numbers is not None and self._steps is None and not self.job._epochs:
            self.job._epochs = len(numbers)
        if self._has_epochs:
            raise UsageError("the program begins a second loop over epochs: a job has one; train again in a job of its "
                             "own, with the weights that the first has saved")
        self._has_epochs = True
        while (epoch := self._begin(numbers)) is not None:
            try:
                yield epoch
            except GeneratorExit:
                self._left_epochs = not self.job._is_stopped
                raise
            if self.is_open and not self.job._is_stopped:
                raise UsageError(f"epoch {epoch} had no loop over the loader that prepare returned")
        self.end()

    def _begin(self, numbers: Optional[range] = None) -> Optional[Epoch]:
        """The next epoch, or None after the last."""
        self.join()
        self.refuse_left()
        job = self.job
        begin = job._shared.position
        if job._is_over or begin >= self._total or not job._advance() and job._end_step <= begin:
            return None
        job._moved()
        if begin > 0:
            job._agree("goes on")
        number = begin // self._per_epoch
        end = min((number + 1) * self._per_epoch, self._total)
        first = numbers[0] + number * numbers.step if numbers else number
        self._epoch = Epoch.of(first, number, end, job._shared, self._is_missed)
        self.is_open = True
        job._moved()
        self._seed("begin")
        self._quiet.set(self._is_missed(), f", up to step {job._end_step if job._holds is None else job._holds}")
        return self._epoch

    def _is_missed(self) -> bool:
        """Whether no batch of this epoch comes, or, after its batches, there are no weights."""
        job = self.job
        if not self.is_open:
            return not job._has_weights()
        assert self._epoch is not None
        return bool(job._pending is None or job._pending.step >= self._epoch._end)

    def _seed(self, moment: str) -> None:
        """Random numbers between batches are the same in every process."""
        seed_all(zlib.crc32(f"{self.job.seed} {self.job._shared.position} {moment}".encode()))

    def is_complete(self) -> bool:
        return self._steps is not None and self.job._shared.position >= self._total

    def end(self) -> None:
        """After the last epoch: waits until the server ends the run."""
        self._quiet.set(False)
        if self._steps is None or self.job._is_over:
            return
        for step in self._steps:
            raise UsageError(f"the program has left its loop before step {step.number + 1} of {self._total}; to "
                             f"end a run early, use job.stop()")

    # ----------------------------------------------------------------------------------- batches

    def slices(self) -> Iterator[Any]:
        self.refuse_left()
        if self.is_inside:
            raise UsageError("the program iterates over the training loader within a loop over it")
        if not self.is_open and self._begin() is None:
            if self.job._is_stopped or self.job._end_step is not None and self.job._end_step < self._total:
                return  # the run has ended early
            raise UsageError(f"the run has {-(-self._total // self._per_epoch)} epochs, and the program begins "
                             f"one more: expected as many as Job(epochs=...) or the config says")
        assert self._steps is not None and self._epoch is not None
        self.is_open = False
        self.is_inside = self._has_left = True
        self.job._moved()
        self.job._gradients.remember_modes()
        try:
            for step in self._steps:
                self.step = step.number % self._per_epoch
                for data in step:
                    is_again = self.job._gradients.is_again(self.job._work)  # not None within a step
                    with contextlib.redirect_stdout(io.StringIO()) if is_again else contextlib.nullcontext():
                        yield data  # what the body prints appears once
                    self._end_body(step)
                self._end_step(step)
                if step.ends_epoch or step.number + 1 == self._total:
                    break
            self._has_left = False
        finally:
            self.is_inside = False
        self.job._moved()
        self._seed("end")
        if self.job._client.is_alone and self.is_complete():
            self.end()
        self._quiet.set(not self.job._has_weights() and self._quiet.is_on)

    def refuse_left(self) -> None:
        if self._left_epochs and not self.job._is_over:
            raise UsageError("the program has left the loop over epochs before its end: expected job.stop() before "
                             "break")
        if self._has_left and not self.is_inside:
            raise UsageError("the program has left the loop over its batches before the end: every epoch needs "
                             "all of its batches; to end a run early, use job.stop() between epochs")

    def _end_body(self, step: Step) -> None:
        job = self.job
        if not job._gradients.is_complete:
            raise UsageError("a slice had no optimizer.step(): expected one in every pass of the loop's body, "
                             "after job.backward(loss). To accumulate gradients, give the DataLoader the whole "
                             "batch: it is cut into slices, whose number --slices sets")
        counts = [one.calls for one in self._schedulers]
        for one in self._schedulers:
            one.calls = 0
        if self._calls is None:
            self._calls = counts
            if counts:
                job._client.tell("calls of schedulers", 0, json.dumps(counts).encode())
        elif counts != self._calls:
            raise UsageError(f"the schedulers were called {counts} times in step {step.number + 1}, and {self._calls} "
                             f"times before: expected the same in every pass of the loop's body, which runs "
                             f"once per slice; a condition must not depend on the epoch or on a count of passes. "
                             f"For a warm-up, SequentialLR or LambdaLR, or a rate that the body sets")

    def _end_step(self, step: Step) -> None:
        job = self.job
        if job._is_updating:
            if job._clip_norm is not None:
                torch.nn.utils.clip_grad_norm_([one.tensor for one in job._gradients.parameters], job._clip_norm)
            for one in job._own.optimizers:
                one.step()
            job._end_update()
        if not self._schedulers:
            return
        if self._calls is None:
            self._calls = self._ask_calls()
        for one, count in zip(self._schedulers, self._calls):
            for _ in range(count):
                one.plain()

    def _ask_calls(self) -> List[int]:
        """For steps that this process missed. Those of step 0 told it before their first gradient."""
        job = self.job
        if job._end_step is not None:
            job._ended_before()
        step = job._pending.step if job._pending is not None else 0
        kind, value = job._client.ask("calls of schedulers", step, False)
        if kind != _client.VALUE:
            raise UsageError("the run does not say how often a step calls schedulers: it was begun by another "
                             "program")
        counts: List[int] = json.loads(value)
        return counts
