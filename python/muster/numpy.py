"""Trains gradients that you compute yourself, with NumPy or anything else.

    job = muster.numpy.Job()
    weights = job.variables({"w": np.zeros(3), "b": 0.0})
    for step in job.steps(len(y)):
        for rows in step:
            error = x[rows] @ weights["w"] + weights["b"] - y[rows]
            step.gradient((error**2).mean(), {"w": 2 * x[rows].T @ error / len(rows),
                                              "b": 2 * error.mean()})
"""

from typing import Any, Callable, Dict, Iterator, Mapping, Optional

import numpy as np

from muster import _client, _job
from muster._client import UsageError, Work


class Step(_job.Step):
    __doc__ = f"{_job.Step.__doc__}\n    A slice is an int64 array: the indices of its samples."
    _job: "Job"

    def gradient(self, loss: float, gradients: Mapping[str, Any], **scalars: float) -> None:
        """Completes a slice. The loss, the gradients and other values, such as accuracy=0.9, are
        means over its samples."""
        self._job._gradient(loss, gradients, scalars)


class Job(_job.Job):
    """This process's part in a job. ``config`` is for a program that was not started by ``muster
    launch``: it then trains alone, with a server of its own. ``batch_size`` (of all processes
    together) and ``epochs`` count where the config says nothing of them, or where there is none."""

    _step = Step

    def variables(self, initial: Mapping[str, Any],
                  options: Optional[Mapping[str, Mapping[str, Any]]] = None
                  ) -> Dict[str, np.ndarray]:
        """Describes all variables, and returns their weights (float32, read-only), which change
        from step to step. The initial values of rank 0 are used. ``options`` may have
        weight_decay and learning_rate_multiplier for a variable."""
        for name in options or {}:
            if name not in initial:
                raise UsageError(f"options: there is no variable {name}: expected one of "
                                 f"{sorted(initial)}")
        values = {name: np.asarray(one, np.float32) for name, one in initial.items()}
        self._numbers = {
            name: self._client.add_variable(name, one.shape, **(options or {}).get(name, {}))
            for name, one in values.items()
        }
        weights = {}
        self._gradients = {}
        for name, number in self._numbers.items():
            writable = self._client.weights(number).reshape(values[name].shape)
            writable[...] = values[name]
            weights[name] = writable.view()
            weights[name].flags.writeable = False
            self._gradients[name] = self._client.gradient(number).reshape(values[name].shape)
        self._weights = weights
        return weights

    def evaluation(self, samples: int, function: Callable[[np.ndarray], Any], *,
                   validation: bool = False) -> None:
        """Has a test set of this many samples (or a validation set) evaluated when the config says
        so. ``function`` gets the indices of some samples, and returns the mean loss, or a
        dictionary of means with a "loss"."""
        kind = _client.VALIDATION_BLOCK if validation else _client.TEST_BLOCK
        self._evaluate_on(kind, samples, function)

    def steps(self, samples: int) -> "_job.Steps":
        """Joins the job, and returns its steps. ``samples``: the size of the training set."""
        return self._join(samples)

    def _size(self, dataset: int) -> int:
        return dataset

    def _begin(self, work: Work) -> np.ndarray:
        self._is_done = False
        _job.seed_all(work.seed)
        return work.samples

    def _gradient(self, loss: float, gradients: Mapping[str, Any],
                  scalars: Mapping[str, float]) -> None:
        work = self._work
        if work is None or self._is_done:
            raise UsageError("gradient: expected one call for each slice, within the inner loop")
        if gradients.keys() != self._numbers.keys():
            raise UsageError(f"gradient: expected gradients of {sorted(self._numbers)}, got "
                             f"{sorted(gradients)}")
        count = len(work.samples)
        self._add_scalars(scalars, count)
        self._client.report(float(loss) * count)
        for name, one in gradients.items():
            if np.shape(one) != self._gradients[name].shape:
                raise UsageError(f"gradient of {name}: expected shape "
                                 f"{self._gradients[name].shape}, got {np.shape(one)}")
            np.multiply(one, count / work.batch, out=self._gradients[name], casting="same_kind")
        self._is_done = True

    def _end(self, work: Work) -> None:
        if not self._is_done:
            raise UsageError("a slice has no gradient: call step.gradient for each one")
        self._client.done()

    def _evaluate(self, work: Work, dataset: Any, function: Callable[..., Any]) -> Any:
        return function(work.samples)
