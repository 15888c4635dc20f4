"""Trains with TensorFlow loops of one's own, over GradientTape, with the same bits on any number of workers.

    job = muster.tensorflow.Job(batch_size=256, epochs=10)
    job.prepare(model.variables, optimizer)
    for step in job.steps(len(x)):
        for rows in step:                                    # was: for i in range(num_gpus)
            with tf.GradientTape() as tape:
                loss = loss_function(y[rows], model(x[rows], training=True))
            step.gradient(loss, tape.gradient(loss, model.trainable_variables))
        step.apply()                                         # was: average_gradients, apply_gradients

Models that train with fit use muster.keras.
"""

from typing import Any, Callable, Dict, Iterable, List, Optional

import numpy as np
import tensorflow as tf

from muster import _job, _tensorflow
from muster._alone_plan import seed_of
from muster._client import UsageError, Work
from muster._variables import Place, lent, to_numpy
from muster._variables_job import VariablesJob, rate_of, restore_optimizer, state_of

_tensorflow.set_up()


class Step(_job.Step):
    __doc__ = f"{_job.Step.__doc__}\n    A slice is an int64 array: the indices of its samples."
    _job: "Job"

    def gradient(self, loss: Any, gradients: Iterable[Any], **means: float) -> None:
        """Completes a slice: its loss, and the gradients of the trainable variables, in their order, as tape.gradient
        returns them. None is 0. The loss and other values to report, such as accuracy=0.9, are means over the slice's
        samples."""
        self._job._gradient(loss, list(gradients), means)

    def apply(self) -> None:
        """After the slices: the mean gradient goes to the optimizer, in the process that updates the weights."""
        self._job._applied = self.number
        if self._job._is_updating:
            self._job._end_update()


class Job(VariablesJob):
    """This process's part in a job. ``batch_size`` (of all processes together) and ``epochs`` count where the config
    says nothing of them, or where there is none."""

    _step = Step

    def __init__(self, *, batch_size: Optional[int] = None, epochs: Optional[int] = None) -> None:
        super().__init__(batch_size=batch_size, epochs=epochs)
        self._applied = -1
        self._is_done = False
        self._names_unused = True

    def prepare(self, variables: Iterable[Any], optimizer: Any) -> None:
        """``variables``: all of the model, of float32: tf.Variable or those of Keras. The trainable ones get
        gradients; what else the model changes, such as the statistics of batch norms, is the mean over the slices.
        ``optimizer``: of Keras, or with apply_gradients and variables."""
        if self.variables is not None:
            raise UsageError("prepare was called twice: give it the variables of all models")
        if not hasattr(optimizer, "apply_gradients"):
            raise UsageError(f"prepare got {type(optimizer).__name__} as optimizer: expected one of Keras, with "
                             f"apply_gradients")
        given = list(variables)
        self._seeds = [one for one in given if "seed_generator" in str(getattr(one, "path", one.name))]
        given = [one for one in given if not any(one is seed for seed in self._seeds)]
        described = self._describe(sorted(given, key=lambda one: bool(one.trainable)), 1, rate_of(optimizer),
                                   _tensorflow.describe())
        self._optimizer = optimizer
        self._trained: List[Place] = [described.of(one) for one in given if one.trainable]
        self._statistics = [one for one in described.places if not one.variable.trainable]
        if not self._trained:
            raise UsageError("prepare got no trainable variable")
        self._bring_between_slices(self._statistics)
        self._build()

    def steps(self, samples: int) -> _job.Steps:
        """Joins the job, and returns its steps. ``samples``: the size of the training set."""
        if self.variables is None:
            raise UsageError("steps: call prepare first")
        self.variables.write()  # weights may have been loaded
        return self._join(samples)

    def save(self, path: str, write: Callable[[str], Any]) -> None:
        """Calls ``write(path)``, such as model.save, in the process that updates the weights, and waits for it in the
        others. Not within a step."""
        if self._is_updating:
            self._end_update()
        self.written_once(f"save {path}", lambda: write(path))

    # ------------------------------------------------------------------------------ the loop's

    def _build(self) -> None:
        variables = [one.variable for one in self._trained]
        if self.is_updater and hasattr(self._optimizer, "build") and not getattr(self._optimizer, "built", False):
            self._optimizer.build(variables)

        def apply(gradients: List[Any]) -> None:
            self._optimizer.apply_gradients(zip(gradients, variables))

        self._apply = tf.function(apply, autograph=False)

    def _begin(self, work: Work) -> Any:
        self._is_done = False
        for i, one in enumerate(self._seeds):
            one.assign(np.array([seed_of(work.seed, i, 0) & 0x7FFFFFFF, 0], str(to_numpy(one).dtype)))
        return super()._begin(work)

    def _gradient(self, loss: Any, gradients: List[Any], means: Dict[str, float]) -> None:
        work = self._work
        if work is None or self._is_done:
            raise UsageError("gradient: expected one call for each slice, within the inner loop")
        if len(gradients) != len(self._trained):
            raise UsageError(f"gradient: expected gradients of the {len(self._trained)} trainable variables, in their "
                             f"order, got {len(gradients)}")
        share = np.float32(len(work.samples) / work.batch)
        self._loss = float(to_numpy(loss)) * len(work.samples)
        if not self._is_check:
            self._add_scalars({name: float(to_numpy(one)) for name, one in means.items()}, len(work.samples))
        for place, one in zip(self._trained, gradients):
            if one is None:
                place.gradient[...] = 0
                continue
            dense = to_numpy(tf.convert_to_tensor(one))
            if dense.shape != place.gradient.shape:
                raise UsageError(f"gradient of {place.name}: expected shape {place.gradient.shape}, got {dense.shape}")
            np.multiply(dense, share, out=place.gradient)
        self._name_unused([place.name for place, one in zip(self._trained, gradients) if one is None])
        self._is_done = True

    def _name_unused(self, names: List[str]) -> None:
        if self._names_unused and names and self.rank == 0:
            print(f"muster: no gradient in the first slice, taken as zero: {', '.join(names)}")
        self._names_unused = False

    def _compute(self, work: Work) -> float:
        if not self._is_done:
            raise UsageError("a slice has no gradient: call step.gradient for each one")
        assert self.variables is not None
        self.variables.changes[...] = 0
        for place in self._statistics:
            np.subtract(to_numpy(place.variable), place.weights, out=place.gradient)
            place.gradient *= np.float32(len(work.samples) / work.batch)
        return self._loss

    def _update(self, step: int) -> float:
        if self._applied != step:
            raise UsageError("a step has no step.apply(): expected one after the loop over its slices")
        for place in self._statistics:
            place.weights += place.gradient
            place.variable.assign(place.weights)
        self._apply([lent(one.gradient) for one in self._trained])
        for place in self._trained:
            place.write()
        return rate_of(self._optimizer)

    def _kept(self) -> Dict[str, np.ndarray]:
        return state_of(self._optimizer)

    def _restore(self, kept: Dict[str, np.ndarray]) -> bool:
        restore_optimizer(self._optimizer, kept, self._is_resumed)
        return True

    def _moved(self) -> None:
        super()._moved()
        if self._client.joined and not self._updates and self._holds == self._shared.position:
            self.bring()
