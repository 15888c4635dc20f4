"""One slice of a Keras model: its loss, gradients, statistics and metrics, by the model's own train_step. The
optimizer only tells its gradients there, because the process that updates the weights applies their mean."""

import contextlib
import dataclasses
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import keras
import numpy as np

from muster._client import UsageError
from muster._variables import lent, to_numpy

IS_TENSORFLOW = keras.backend.backend() == "tensorflow"
if IS_TENSORFLOW:
    import tensorflow as tf
else:
    import torch


@dataclasses.dataclass
class Result:
    """Of a slice or a batch. Arrays may be views, valid until the next one."""

    logs: Dict[str, float]
    gradients: List[Optional[np.ndarray]]  # of each trained variable
    statistics: List[np.ndarray]  # the new values of what the model changes by itself
    metrics: np.ndarray  # the variables of all metrics, which began with 0


class Stepper:
    """Owned by one fit or evaluation."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.optimizer = model.optimizer
        self.trained: List[Any] = []
        self.statistics: List[Any] = []
        self.metrics: List[Any] = []
        self.extras: List[str] = []  # what train_step returns besides the results of metrics
        self.is_used: List[bool] = []  # for each trained variable, whether the loss depends on it
        self._calls: Dict[str, Callable[..., Any]] = {}

    # --------------------------------------------------------------------------- what there is

    def build(self, data: Any, trains: bool) -> None:
        """Makes variables that Keras makes when it sees the first data, and looks at what a step does."""
        if not all(layer.built for layer in self.model._flatten_layers()):
            with contextlib.suppress(NotImplementedError):  # a train_step may do without call
                self.model(tensors(data)[0], training=False)
        before = [(one, np.array(to_numpy(one))) for one in self.model.weights]
        result = self._run_plainly(self.model.train_step if trains else self.model.test_step, data)
        for one, value in before:
            one.assign(value)
        self.metrics = list({id(one): one for metric in self.model.metrics for one in metric.variables}.values())
        self._check_metrics()
        known = _flat(self.model.get_metrics_result())
        self.extras = [name for name in result[0] if name not in known]
        self._names = list(result[0])
        self.trained = list(self.model.trainable_variables)
        own = {id(one) for layer in self.model._flatten_layers() for one in layer._trainable_variables}
        trained = {id(one) for one in self.trained}
        self.statistics = [one for one in self.model.weights if id(one) not in own and id(one) not in trained
                           and str(one.dtype) == "float32"]
        if trains and not self.trained:
            raise UsageError("the model has no trainable variable: expected a layer whose trainable is True")
        if trains:
            self.is_used = [gradient is not None for gradient in self._in_order(result[1])]
            if not any(self.is_used):
                raise UsageError("the loss depends on no trainable variable of the model")

    def _check_metrics(self) -> None:
        for metric in self.model.metrics:
            metric.reset_state()
        for one in self.metrics:
            if np.any(to_numpy(one)):
                raise UsageError(f"the metric variable {one.path} does not begin with 0: expected metrics that are "
                                 f"sums over samples, because each process computes a part of them")

    def _run_plainly(self, step: Callable[..., Any], data: Any) -> Tuple[Dict[str, Any], List[Any]]:
        with self._capturing() as calls:
            logs = _flat(step(keras.utils.pack_x_y_sample_weight(*tensors(data))))
        return logs, calls

    @contextlib.contextmanager
    def _capturing(self) -> Iterator[List[Any]]:
        calls: List[Any] = []
        optimizer = self.optimizer
        if optimizer is None:
            yield calls
            return

        def apply(grads: Any, trainable_variables: Any = None) -> None:
            variables = self.model.trainable_variables if trainable_variables is None else trainable_variables
            calls.append((list(grads), list(variables)))

        object.__setattr__(optimizer, "apply", apply)
        try:
            yield calls
        finally:
            object.__delattr__(optimizer, "apply")

    def _in_order(self, calls: List[Any]) -> List[Any]:
        if len(calls) != 1:
            raise UsageError(f"train_step applied the optimizer of compile {len(calls)} times: expected once, and no "
                             f"other optimizer. Models with several, such as GANs, train with a loop over steps: "
                             f"muster.tensorflow.Job (docs/KERAS.md)")
        found = {id(variable): gradient for gradient, variable in zip(*calls[0])}
        for one in found.keys() - {id(variable) for variable in self.trained}:
            raise UsageError("train_step has a gradient of a variable that is not one of model.trainable_variables")
        return [found.get(id(one)) for one in self.trained]

    # --------------------------------------------------------------------------------- a slice

    def train(self, data: Any) -> Result:
        return self._run("train", data)

    def test(self, data: Any) -> Result:
        return self._run("test", data)

    def _run(self, kind: str, data: Any) -> Result:
        data = tensors(data)
        leaves = [one for one in keras.tree.flatten(data) if one is not None]
        like = keras.tree.map_structure(lambda one: one is not None and (tuple(one.shape[1:]), str(one.dtype)), data)
        key = f"{kind} {like}"
        if key not in self._calls:
            self._calls[key] = self._compiled(self._step(kind, data), leaves)
        logs, gradients, statistics, metrics = self._calls[key](*leaves)
        used = iter(gradients)
        return Result({name: _number(name, value) for name, value in logs.items()},
                      [to_numpy(next(used)) if is_used else None for is_used in self.is_used]
                      if kind == "train" else [],
                      [to_numpy(one) for one in statistics],
                      np.concatenate([np.ravel(to_numpy(one)).astype(np.float32) for one in metrics] or
                                     [np.empty(0, np.float32)]))

    def _step(self, kind: str, like: Any) -> Callable[..., Any]:
        step = self.model.train_step if kind == "train" else self.model.test_step
        places = [one is not None for one in keras.tree.flatten(like)]

        def run(*leaves: Any) -> Any:
            given = iter(leaves)
            data = keras.tree.pack_sequence_as(like, [next(given) if is_there else None for is_there in places])
            for one in self.metrics:
                one.assign(keras.ops.zeros(one.shape, one.dtype))
            logs, calls = self._run_plainly(step, data)
            gradients = self._in_order(calls) if kind == "train" else []
            if kind == "train" and [one is not None for one in gradients] != self.is_used:
                raise UsageError("train_step gave other variables a gradient than in its first call")
            return logs, [_dense(one) for one in gradients if one is not None], \
                [one.value + 0 if IS_TENSORFLOW else one.value for one in self.statistics], \
                [one.value + 0 if IS_TENSORFLOW else one.value for one in self.metrics]

        return run

    def _compiled(self, run: Callable[..., Any], leaves: Sequence[Any] = ()) -> Callable[..., Any]:
        """One graph for slices of any number of samples, so that a slice has the same one in every process."""
        if not IS_TENSORFLOW or self.model.run_eagerly:
            return run
        signature = [tf.TensorSpec([None, *one.shape[1:]], one.dtype) for one in leaves] or None
        compiled: Callable[..., Any] = tf.function(
            tf.autograph.experimental.do_not_convert(run), input_signature=signature,
            jit_compile=self.model.jit_compile or None)
        return compiled

    # ------------------------------------------------------------------------- the whole batch

    def results(self, sums: np.ndarray) -> Dict[str, float]:
        """The logs that these sums over slices give: first the means of the extras, with the number of samples, and
        then the variables of metrics."""
        count = len(self.extras) + 1
        means = dict(zip(self.extras, sums[:count - 1] / max(1.0, float(sums[count - 1]))))
        if "results" not in self._calls:
            self._calls["results"] = self._compiled(self._results)
        logs = {name: _number(name, value) for name, value in self._calls["results"](sums[count:].copy()).items()}
        return {name: float(means[name]) if name in means else logs[name] for name in self._names}

    def _results(self, state: Any) -> Dict[str, Any]:
        begin = 0
        state = keras.ops.convert_to_tensor(state)
        for one in self.metrics:
            size = int(np.prod(one.shape))
            one.assign(keras.ops.cast(keras.ops.reshape(state[begin:begin + size], one.shape), one.dtype))
            begin += size
        return _flat(self.model.get_metrics_result())

    def sums(self, result: Result, count: int) -> np.ndarray:
        """What ``results`` takes, of some samples."""
        return np.concatenate([np.array([*(result.logs[name] * count for name in self.extras), count], np.float32),
                               result.metrics])

    @property
    def sums_size(self) -> int:
        return len(self.extras) + 1 + sum(int(np.prod(one.shape)) for one in self.metrics)

    # ------------------------------------------------------------------------------ the update

    def apply(self, gradients: Sequence[Optional[np.ndarray]]) -> None:
        """None for those that are not used."""
        if "apply" not in self._calls:
            def apply(given: List[Any]) -> None:
                used = iter(given)
                self.optimizer.apply([next(used) if one else None for one in self.is_used], self.trained)

            self._calls["apply"] = self._compiled(apply)
        given = [lent(one) if IS_TENSORFLOW else torch.from_numpy(one) for one in gradients if one is not None]
        with contextlib.nullcontext() if IS_TENSORFLOW else torch.no_grad():
            self._calls["apply"](given)


def _number(name: str, value: Any) -> float:
    array = to_numpy(value)
    if array.size != 1:
        raise UsageError(f"the metric {name} has {array.size} values: expected one, such as that of "
                         f"F1Score(average=\"macro\")")
    return float(array.reshape(()))


def _flat(logs: Any) -> Dict[str, Any]:
    """As Keras flattens them."""
    found: Dict[str, Any] = {}
    for name, value in logs.items():
        found.update(_flat(value) if isinstance(value, dict) else {name: value})
    return found


def _dense(gradient: Any) -> Any:
    return tf.convert_to_tensor(gradient) if IS_TENSORFLOW else gradient


def tensors(data: Any) -> Any:
    """The arrays of a batch as tensors of the backend, which own their memory."""
    def one(value: Any) -> Any:
        if value is None or IS_TENSORFLOW and isinstance(value, tf.Tensor):
            return value
        return tf.constant(value) if IS_TENSORFLOW else keras.ops.convert_to_tensor(value)

    return keras.tree.map_structure(one, data)
