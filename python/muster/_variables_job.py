"""What muster.keras and muster.tensorflow share: a job whose program has the model's variables and the optimizer.

One more process of the program updates the weights, with the optimizer that the program has. It gets no slices; the
others send it, through the server, what they would add to each variable: gradients to what is trained, changes to what
the model changes by itself."""

import io
import os
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence

import numpy as np

from muster import _job
from muster._client import UsageError, Work
from muster._repeat import Repeat
from muster._variables import Bringer, Place, Variables, to_numpy


class VariablesJob(_job.Job):
    """``_compute``, ``_update``, ``_kept`` and ``_restore`` are its kinds' own."""

    def __init__(self, *, batch_size: Optional[int] = None, epochs: Optional[int] = None) -> None:
        super().__init__(batch_size=batch_size, epochs=epochs)
        self.variables: Optional[Variables] = None
        self._version = -1  # of the weights in the model
        self._is_lent = False  # they are in the job's memory
        self._is_restored = self._is_resumed = self._is_check = False
        self._updated = -1  # the step whose update is due

    def _describe(self, variables: Sequence[Any], values: int, rate: float, arithmetic: str) -> Variables:
        """Before the job is joined."""
        self.variables = described = Variables(self._client, variables, values)
        self._client.set_optimizer("type: PROGRAM", rate)
        self._client.set_arithmetic(arithmetic)
        self._repeat = Repeat(self._client, True)
        self._bound()
        return described

    def _bound(self) -> None:
        """The job's places have other variables than before."""
        assert self.variables is not None
        self._everything = self._changing = Bringer(self.variables, self.variables.places)

    def _bring_between_slices(self, places: List[Place]) -> None:
        """What a slice changes by itself, so that the next one does not see it."""
        assert self.variables is not None
        self._changing = Bringer(self.variables, places)

    def is_missed(self) -> bool:
        """Whether this process lacks the weights of the program's position, which is past."""
        position = self._shared.position
        if self._updates:
            return position < self._client.first_step
        if self._holds == position or not self._advance():
            return self._holds != position
        assert self._pending is not None
        return self._pending.step > position

    def bring(self) -> bool:
        """Gives the model the weights of the program's position. Whether this process has them."""
        if self.is_missed():
            return False
        position = self._shared.position
        if self.is_updater:
            self._show()
        if not self._updates and (self._version != position or self._is_lent):
            self._everything.bring(lends=False)
        self._version, self._is_lent = position, False
        return True

    def written_once(self, name: str, write: Callable[[], Any]) -> None:
        """Writes a file in the process that updates, which has the whole state, and waits for it in all others."""
        if not self._client.joined or self._is_over:
            if self.is_updater or not self._client.joined and self.rank == 0:
                self._show()
                write()
            return
        key = self._shared.key("written", name)
        if not self.is_updater:
            self._client.ask(key, self._shared.position, False)
        elif self.bring():
            write()
            self._client.tell(key, self._shared.position, b"")

    # ------------------------------------------------------------------------ the kinds' own

    def _compute(self, work: Work) -> float:
        """Writes a slice's part of the step to the job's memory, and returns its loss, a sum over samples of which
        the batch has ``work.batch``."""
        raise NotImplementedError

    def _update(self, step: int) -> float:
        """Makes the weights of the next step, in the model and in the job's memory. Returns the learning rate."""
        raise NotImplementedError

    def _is_ahead(self) -> bool:
        """Whether only the job's memory has the newest weights."""
        return False

    def _show(self) -> None:
        """Gives them and the optimizer's state to the program's variables."""

    def _kept(self) -> Dict[str, np.ndarray]:
        """What checkpoints need besides the weights."""
        raise NotImplementedError

    def _restore(self, kept: Dict[str, np.ndarray]) -> bool:
        """Whether the program was where it must be for this."""
        raise NotImplementedError

    # ------------------------------------------------------------------------------ the loop's

    def _size(self, dataset: int) -> int:
        return dataset

    def _begin(self, work: Work) -> Any:
        bringer = self._changing if self._version == work.step else self._everything
        bringer.bring(lends=True)
        self._version, self._is_lent = work.step, True
        _job.seed_all(work.seed)
        return work.samples

    def _end(self, work: Work) -> None:
        assert self.variables is not None
        loss = self._compute(work)
        contents: Iterator[Any] = ((one.name, one.gradient) for one in self.variables.places)
        if self._is_check:
            self._is_check = False
            return self._repeat.first(work, loss, contents)
        self._repeat.second(work, loss, contents)
        self._client.report(loss)
        self._client.done()

    def _repeated(self) -> Optional[Work]:
        self._work = self._repeat.due(self._pending, False)
        self._is_check = self._work is not None
        return self._work

    def _has_weights(self) -> bool:
        return self._updates and self._shared.is_left or super()._has_weights()

    def _begin_update(self, work: Work) -> None:
        self._updated = work.step

    def _end_update(self) -> None:
        self._is_updating = False
        rate = self._update(self._updated)
        self._version = -1 if self._is_ahead() else self._updated + 1
        self._client.set_learning_rate(max(0.0, rate))
        self._client.done()

    def _moved(self) -> None:
        """A resumed run: the process that updates begins with the weights and the state of its optimizer."""
        if self._is_restored or not self._updates or not self._client.joined or \
                self._shared.position != self._client.first_step:
            return
        if self._version != self._shared.position:
            self._everything.bring(lends=False)
            self._version, self._is_lent = self._shared.position, False
        state = self._client.state()
        if not state:
            self._is_restored = True
            return
        with np.load(io.BytesIO(state), allow_pickle=False) as kept:
            self._is_restored = self._restore(dict(kept))

    def _missed_steps_end(self) -> None:
        # The state is that of this moment: after the program's code between steps, which has run once more.
        if self._updates and not self._is_resumed:
            self._is_resumed, self._is_restored = True, False
            self._moved()

    def _save(self) -> None:
        file = io.BytesIO()
        np.savez(file, **self._kept())  # type: ignore[arg-type]
        self._client.save(file.getvalue())
        self._client.done()

    def _alone(self, function: Callable[[], Any]) -> Any:
        self.bring()
        return function()


def slices() -> int:
    """Of a batch. Known before the job is joined."""
    return int(os.environ.get("MUSTER_SLICES", "4"))


def state_of(optimizer: Any) -> Dict[str, np.ndarray]:
    return {f"optimizer {i}": np.array(to_numpy(one)) for i, one in enumerate(optimizer.variables)}


def restore_optimizer(optimizer: Any, kept: Dict[str, np.ndarray], with_rate: bool) -> None:
    """Without the learning rate: code of the program between the steps will change it once more."""
    rate = getattr(getattr(optimizer, "inner_optimizer", optimizer), "_learning_rate", None)
    variables = optimizer.variables
    states = [kept.get(f"optimizer {i}") for i in range(len(variables))]
    if f"optimizer {len(states)}" in kept or any(
            state is None or state.shape != tuple(one.shape) for state, one in zip(states, variables)):
        raise UsageError("the checkpoint has the state of another optimizer than the program's: resume a run with the "
                         "program that began it")
    for state, one in zip(states, variables):
        if with_rate or one is not rate:
            one.assign(state)


def rate_of(optimizer: Any) -> float:
    """0 if it has none."""
    try:
        return float(to_numpy(optimizer.learning_rate))
    except (AttributeError, TypeError, ValueError):
        return 0.0
