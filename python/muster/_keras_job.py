"""The job of a Keras program. A fit is a phase of it: the run has as many steps as all fits together, and ends when
the program does."""

import atexit
import os
import sys
from typing import Any, Callable, Dict, Iterator, List, Optional

import numpy as np

from muster import _client, _job
from muster._client import UsageError, Work
from muster._shared import Quiet
from muster._variables_job import VariablesJob, rate_of, slices

_OPEN = 1000000  # MUSTER_OPEN of client/muster.h
_SPARE = 4096  # values for the metrics of later fits


class Phase:
    """What the job asks of a fit."""

    optimizer: Any
    number: int  # of the fit
    begin: int  # the steps before, and those that only publish weights

    def scale(self) -> float:
        """Of the loss; 0: there is none."""
        raise NotImplementedError

    def compute(self, work: Work) -> float:
        raise NotImplementedError

    def update(self, step: int) -> None:
        raise NotImplementedError

    def kept(self) -> Dict[str, np.ndarray]:
        raise NotImplementedError

    def is_ahead(self) -> bool:
        raise NotImplementedError

    def show(self) -> None:
        raise NotImplementedError

    def restore(self, kept: Dict[str, np.ndarray], with_rate: bool) -> None:
        raise NotImplementedError


class KerasJob(VariablesJob):
    """Owned by the strategy."""

    def __init__(self) -> None:
        super().__init__()
        self.phase: Optional[Phase] = None
        self.fits = 0  # before the current one
        self.steppers: Dict[str, Any] = {}  # of the last calls
        self.quiet = Quiet()
        self.is_inside = False  # a function that one process calls for all
        self._steps: Optional[Iterator[_job.Step]] = None
        self.is_fitting = False
        self.last_loss = 0.0  # of the fit before
        self._published: Optional[float] = None  # the loss that a step without training shows
        self._claim: Optional[str] = None
        self._claims = 0

    @property
    def is_alone(self) -> bool:
        return self._client.is_alone

    @property
    def is_over(self) -> bool:
        return self._is_over

    @property
    def position(self) -> int:
        """The steps behind the program."""
        return self._shared.position

    # ------------------------------------------------------------------------------- the phases

    def join(self, phase: Phase, weights: List[Any], values: int, batch: int, batches: int, arithmetic: str) -> None:
        """With the first fit. The server's samples are nominal, because fits may have different sets."""
        self.phase, phase.number = phase, self.fits
        client = self._client
        self._describe(weights, -(-2 * values // _SPARE) * _SPARE, rate_of(phase.optimizer), arithmetic)
        assert self.variables is not None
        self.variables.values[0] = phase.scale()
        batch = max(batch, slices())
        client.set_run(batch, _OPEN)
        client.set_drop_last(True)
        self._steps = iter(self._join(batch * batches))
        if client.is_alone:
            atexit.register(self._leave_alone)

    def bind(self, weights: List[Any]) -> None:
        """For a later fit, maybe of another model."""
        assert self.variables is not None
        if self.variables.bind(weights):
            self._bound()

    def begin(self, phase: Phase, statistics: List[Any]) -> None:
        assert self.variables is not None
        self.phase, phase.number = phase, self.fits
        self._bring_between_slices([self.variables.of(one) for one in statistics])
        self._moved()

    def expect(self, steps: int) -> None:
        """How many the fit that begins will have at most."""
        if not self.is_over and not self._updates and not self.is_missed():
            self._client.tell(f"length:{self.position}", self.position, str(self.position + steps).encode())

    def step(self) -> Optional[bool]:
        """Trains one step. Returns whether this process has its weights; None if the run is over."""
        assert self._steps is not None
        step = next(self._steps, None)
        if step is None:
            return None
        for _ in step:
            pass  # _end has computed it
        if self._is_updating:
            self._end_update()
        return not self.is_missed()

    def publish(self, loss: float) -> None:
        """Gives all processes the weights of the one that updates, if the program has changed them there."""
        if self.is_over:
            return
        assert self.variables is not None
        position, client = self.position, self._client
        key = self._shared.key("publishes", "weights")
        answer = b""
        if not self.is_updater or position <= client.first_step > 0:
            # The process that updates may have told it before this resume.
            kind, answer = client.ask(key, position - (1 if self.is_updater else 0), False)
            if kind != _client.VALUE and (not self.is_updater or self.is_missed()):
                raise UsageError(f"the run does not say whether weights changed after step {position}: it was begun "
                                 f"by another program")
        if self.is_updater and not answer:
            assert self.phase is not None
            differs = self.phase.scale() != self.variables.values[0] or self.variables.differ()
            answer = b"1" if differs else b"0"
            client.tell(key, position, answer)
        if answer == b"1":
            self._published = loss
            self.step()
            self._published = None

    def end_of_fit(self) -> Optional[int]:
        """The step at which other processes have ended this fit, if it is past."""
        kind, value = self._client.ask(f"end of fit {self.fits}", self.position, False)
        return int(value) if kind == _client.VALUE else None

    def tell_end_of_fit(self) -> None:
        if not self.is_over and not self.is_missed():
            self._client.tell(f"end of fit {self.fits}", self.position, str(self.position).encode())

    def leave_fit(self) -> None:
        """The program's own code follows: nobody is late meanwhile, as long as rank 0 lives."""
        if self.rank != 0 or self._client.is_alone or self.is_over or self.is_fitting or self.is_missed():
            return
        self._claims += 1
        key = f"now:code of the program, {os.getpid()}, {self._claims}"
        kind, _ = self._client.ask(key, self.position, True)
        self._claim = key if kind == _client.COMPUTE else None

    def enter(self) -> None:
        if self._claim is not None:
            self._client.tell(self._claim, self.position, b"")
            self._claim = None

    def once(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.enter()
        try:
            return super().once(function, *args, **kwargs)
        finally:
            self.leave_fit()

    def refuse_inside(self, call: str) -> None:
        if self.is_inside:
            raise UsageError(f"{call} within strategy.once: expected the call in all processes, outside of once")

    def compute_once(self, name: str, function: Callable[[], Any]) -> Any:
        return self._once(name, function)

    def compare(self, key: str, text: bytes) -> bool:
        """Whether the processes that ask have the same text."""
        kind, value = self._client.ask(key, self.position, True)
        if kind == _client.COMPUTE:
            self._client.tell(key, self.position, text)
        return kind != _client.VALUE or value == text

    # ------------------------------------------------------------------------------ the loop's

    def _begin(self, work: Work) -> Any:
        return work.samples if self._published is not None else super()._begin(work)

    def _compute(self, work: Work) -> float:
        assert self.phase is not None and self.variables is not None
        if self._published is None:
            return self.phase.compute(work)
        self.variables.add_nothing()
        return self._published * len(work.samples)

    def _repeated(self) -> Optional[Work]:
        return super()._repeated() if self._published is None else None

    def _update(self, step: int) -> float:
        assert self.phase is not None and self.variables is not None
        if self._published is None:
            self.phase.update(step)
        else:
            self.variables.write()
            self.variables.values[0] = self.phase.scale()
        return rate_of(self.phase.optimizer)

    def _is_ahead(self) -> bool:
        return self.phase is not None and self.phase.is_ahead()

    def _show(self) -> None:
        if self.phase is not None:
            self.phase.show()

    def _kept(self) -> Dict[str, np.ndarray]:
        assert self.phase is not None
        return {**self.phase.kept(), "fit": np.array(self.phase.number)}

    def _restore(self, kept: Dict[str, np.ndarray]) -> bool:
        if self.phase is None or int(kept.pop("fit")) != self.phase.number:
            return False
        self.phase.restore(kept, self._is_resumed)
        return True

    def _alone(self, function: Callable[[], Any]) -> Any:
        before, self.is_inside = self.is_inside, True
        try:
            return super()._alone(function)
        finally:
            self.is_inside = before

    def _leave(self) -> None:
        """The program ends, and so does the run."""
        if self._steps is None or self._is_over:
            return
        self.quiet.set(False)
        self.enter()
        self.stop("the program has ended")

    def _leave_alone(self) -> None:
        if getattr(sys, "last_value", None) is None and self._client.joined:
            self._leave()
