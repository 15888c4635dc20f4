"""Trains a Keras 3 model with the same bits on any number of workers.

    import keras
    import muster.keras

    strategy = muster.keras.Strategy()
    with strategy.scope():
        model = keras.Sequential([...])
        model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    model.fit(x, y, batch_size=64 * strategy.num_replicas_in_sync, epochs=5, validation_data=(x_val, y_val))
    model.save("model.keras")

``muster launch --workers 4 -- python3 train.py`` starts it. docs/KERAS.md says what each process does.
"""

import contextlib
import functools
import os
import sys
from typing import Any, Callable, Dict, Iterator, Optional

if "tensorflow" not in sys.modules:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # its notes, once for each process

import keras

from muster import _job
from muster._client import UsageError
from muster._keras_job import KerasJob
from muster._shared import run_seed
from muster._variables_job import slices

if keras.backend.backend() not in ("tensorflow", "torch"):
    raise UsageError(f"the backend of Keras is {keras.backend.backend()}: expected KERAS_BACKEND=tensorflow or torch")


if keras.backend.backend() == "tensorflow":
    from muster import _tensorflow
    _tensorflow.set_up()
else:
    import torch
    from muster import _arithmetic
    keras.utils.set_random_seed(run_seed() & 0xFFFFFFFF)
    _arithmetic.set_up(None, True)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS") or torch.get_num_threads()))

_plain: Dict[str, Callable[..., Any]] = {}


class Strategy:
    """Instead of tf.distribute.MirroredStrategy. A process has one; all of its models train in one job, one after
    another in the order of their fits, if they share their variables."""

    def __init__(self, devices: Any = None, cross_device_ops: Any = None) -> None:
        if devices is not None:
            print("muster: devices are chosen by muster launch (--workers, --devices); those of the strategy are "
                  "ignored", file=sys.stderr)
        current = _job.current()
        if current is not None and not isinstance(current, KerasJob):
            raise UsageError("this process has another job already: expected one Strategy, or one muster.torch.Job")
        self._job = current or KerasJob()
        if current is None:
            self._job.print(f"muster: a batch has {self.num_replicas_in_sync} slices (num_replicas_in_sync), on any "
                            f"number of workers; --slices changes it, and the bits")
            _take_calls(self._job)

    @property
    def num_replicas_in_sync(self) -> int:
        """The slices of a batch: never the number of workers, which would change the result."""
        return slices()

    @contextlib.contextmanager
    def scope(self) -> Iterator["Strategy"]:
        yield self

    def once(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Calls the function in one process, which has the weights of this moment, and returns its result in all:
        numbers, texts, lists and dictionaries of them."""
        return self._job.once(function, *args, **kwargs)

    def print(self, *values: Any, **how: Any) -> None:
        """Prints in rank 0 only, and thus in the terminal."""
        self._job.print(*values, **how)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise UsageError(f"strategy.{name}: expected model.fit in this strategy; loops of one's own over "
                         f"GradientTape use muster.tensorflow.Job (docs/KERAS.md)")


def multi_gpu_model(model: Any, gpus: Any = None, **_: Any) -> Any:
    """As keras.utils.multi_gpu_model of Keras 2: the model trains in a job. Muster chooses the GPUs."""
    strategy = Strategy()
    strategy.print("muster: multi_gpu_model's gpus are ignored: muster launch --workers says how many processes train")
    return model


def _take_calls(job: KerasJob) -> None:
    """The calls of a model that the job answers."""
    from muster import _keras_fit
    model = keras.Model
    for name in ("fit", "evaluate", "predict", "save", "save_weights", "export"):
        if hasattr(model, name):
            _plain[name] = getattr(model, name)

    @functools.wraps(_plain["fit"])
    def fit(self: Any, x: Any = None, y: Any = None, batch_size: Optional[int] = None, epochs: int = 1,
            verbose: Any = "auto", callbacks: Any = None, validation_split: float = 0.0, validation_data: Any = None,
            shuffle: bool = True, class_weight: Any = None, sample_weight: Any = None, initial_epoch: int = 0,
            steps_per_epoch: Optional[int] = None, validation_steps: Optional[int] = None,
            validation_batch_size: Optional[int] = None, validation_freq: Any = 1) -> Any:
        return _keras_fit.fit(job, self, x, y, batch_size, epochs, verbose, callbacks, validation_split,
                              validation_data, shuffle, class_weight, sample_weight, initial_epoch, steps_per_epoch,
                              validation_steps, validation_batch_size, validation_freq)

    @functools.wraps(_plain["evaluate"])
    def evaluate(self: Any, x: Any = None, y: Any = None, batch_size: Optional[int] = None, verbose: Any = "auto",
                 sample_weight: Any = None, steps: Optional[int] = None, callbacks: Any = None,
                 return_dict: bool = False, **kwargs: Any) -> Any:
        if job.variables is None or job.is_over or job.is_inside or kwargs:
            return _plain["evaluate"](self, x, y, batch_size, verbose, sample_weight, steps, callbacks, return_dict,
                                      **kwargs)
        return _keras_fit.evaluate(job, self, x, y, batch_size, verbose, sample_weight, steps, callbacks, return_dict)

    @functools.wraps(_plain["predict"])
    def predict(self: Any, *args: Any, **options: Any) -> Any:
        if job.variables is None or job.is_over or job.is_inside:
            return _plain["predict"](self, *args, **options)
        return _keras_fit.predict(job, self, _plain["predict"], *args, **options)

    def train_on_batch(self: Any, *args: Any, **options: Any) -> Any:
        raise UsageError("train_on_batch would train each process by itself: expected fit, or a loop with "
                         "muster.tensorflow.Job (docs/KERAS.md)")

    model.fit, model.evaluate, model.predict, model.train_on_batch = fit, evaluate, predict, train_on_batch
    for module in (keras.saving, keras.models):
        module.save_model = lambda model, filepath, *args, **options: model.save(filepath, *args, **options)
    for name in _plain.keys() - {"fit", "evaluate", "predict"}:
        setattr(model, name, _writer(job, name))


def _writer(job: KerasJob, name: str) -> Callable[..., Any]:
    plain = _plain[name]

    @functools.wraps(plain)
    def write(self: Any, filepath: Any, *args: Any, **options: Any) -> None:
        job.refuse_inside(name)
        if job.variables is not None:
            job.variables.refuse_past(name, self.weights)
        job.written_once(f"{name} {os.path.basename(str(filepath))}",
                         lambda: plain(self, filepath, *args, **options))

    return write
