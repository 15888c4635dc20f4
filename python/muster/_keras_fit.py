"""Model.fit and Model.evaluate in a job."""

import base64
import functools
import sys
from typing import Any, Dict, List, Optional

import keras
import numpy as np

from muster import _job, _keras_data
from muster._alone_plan import seed_of
from muster._client import UsageError, Work
from muster._keras_job import KerasJob, Phase
from muster._keras_step import IS_TENSORFLOW, Stepper
from muster._keras_update import Update
from muster._variables import to_numpy
from muster._variables_job import restore_optimizer, slices, state_of

_PIECE = 2000  # values in one message
_PREDICTIONS = 40000  # bytes that a process sends to those that lack the weights


class Missed(Dict[str, float]):
    """The logs of a batch that this process has not seen."""

    def __missing__(self, name: str) -> float:
        raise UsageError(f"a callback asked for {name} of a batch that this process has missed, because it came later: "
                         f"expected decisions by the logs of epochs, which all processes have")


class Fit(Phase):
    """One call of fit."""

    def __init__(self, job: KerasJob, model: Any, source: _keras_data.Source, stepper: Stepper,
                 callbacks: Any, per_epoch: int) -> None:
        self._job, self._model, self._source, self._stepper = job, model, source, stepper
        self._callbacks, self._per_epoch = callbacks, per_epoch
        self.optimizer = model.optimizer
        self._shows_batches = any(_has_hook(one, "batch_end") for one in callbacks.callbacks)
        self._sees_weights = any(_sees_weights(one) for one in callbacks.callbacks)
        self._scales = isinstance(self.optimizer, keras.optimizers.LossScaleOptimizer)

    def scale(self) -> float:
        if not self._scales:
            return 0.0
        return float(to_numpy(self.optimizer.dynamic_scale)) if self.optimizer.built else self.optimizer.initial_scale

    def set_up(self) -> None:
        """After the job has been joined."""
        variables = self._job.variables
        assert variables is not None
        self._values = variables.values
        stepper = self._stepper
        if 2 + stepper.sums_size > len(self._values):
            raise UsageError(f"the metrics of this fit have {stepper.sums_size} values: expected at most "
                             f"{len(self._values) - 2}, twice those of the first fit")
        self._sums = slice(2, 2 + stepper.sums_size)
        self._trained = [variables.of(one) for one in stepper.trained]
        self._statistics = [variables.of(one) for one in stepper.statistics]
        changing = {id(one) for one in self._trained + self._statistics}
        self._frozen = [one for one in variables.places if id(one) not in changing]
        if self._job.is_updater or self._scales:
            if not self.optimizer.built:
                self.optimizer.build(stepper.trained)
        self._weights_update = Update(self.optimizer, self._trained, stepper.apply)

    # ------------------------------------------------------------------- what the job asks

    def compute(self, work: Work) -> float:
        variables, stepper = self._job.variables, self._stepper
        assert variables is not None
        variables.changes[...] = 0
        data, count, batch = self._source.slice(work.step - self.begin, work.index, slices())
        if count == 0:
            variables.add_nothing()
            return 0.0
        if self._scales:
            self.optimizer.dynamic_scale.assign(self._values[0])
        if not self._job.is_updater:
            self._iterations.assign(self._begun + work.step - self.begin)
        seed_generators(self._model, work.seed)
        _job.seed_all(work.seed ^ 1)  # whether the data were read now or with the slice before
        result = stepper.train(data)
        share = np.float32(count / batch)
        for place, gradient in zip(self._trained, result.gradients):
            if gradient is None:
                place.gradient[...] = 0
            else:
                np.multiply(gradient, share, out=place.gradient)
        if self._scales and not all(np.isfinite(one.gradient).all() for one in self._trained):
            variables.changes[1] = 1  # the optimizer skips the step
            for place in self._trained:
                place.gradient[...] = 0
        for place, value in zip(self._statistics, result.statistics):
            np.subtract(value, place.weights, out=place.gradient)
            place.gradient *= share
        for place in self._frozen:
            place.gradient[...] = 0
        variables.changes[self._sums] = stepper.sums(result, count)
        loss = result.logs.get("loss", next(iter(result.logs.values()), 0.0))
        return loss * count / batch * work.batch

    def update(self, step: int) -> None:
        variables = self._job.variables
        assert variables is not None
        gradients: List[Optional[np.ndarray]] = [
            one.gradient if is_used else None for one, is_used in zip(self._trained, self._stepper.is_used)]
        if variables.changes[1] > 0:
            gradients = [None if one is None else np.full_like(one, np.nan) for one in gradients]
        for place in self._statistics:
            place.weights += place.gradient
            place.variable.assign(place.weights)
        is_first = (step - self.begin) % self._per_epoch == 0
        self._weights_update.apply(gradients)
        if is_first:
            self._values[self._sums] = 0
        self._values[self._sums] += variables.changes[self._sums]
        if self._scales:
            self._values[0] = self.scale()

    def is_ahead(self) -> bool:
        return self._weights_update.is_ahead

    def show(self) -> None:
        self._weights_update.show()

    def kept(self) -> Dict[str, np.ndarray]:
        self.show()
        kept = state_of(self.optimizer)
        for i, callback in enumerate(self._callbacks.callbacks):
            for j, one in enumerate(getattr(callback, "best_weights", None) or []):
                kept[f"best {i} {j}"] = np.asarray(one)
        return kept

    def restore(self, kept: Dict[str, np.ndarray], with_rate: bool) -> None:
        state = {name: one for name, one in kept.items() if name.startswith("optimizer")}
        restore_optimizer(self.optimizer, state, with_rate)
        for i, callback in enumerate(self._callbacks.callbacks):
            if best := [kept[name] for name in (f"best {i} {j}" for j in range(len(kept))) if name in kept]:
                callback.best_weights = best

    # ---------------------------------------------------------------------------- the epochs

    def run(self, epochs: range, validate: Any) -> None:
        job, model, callbacks = self._job, self._model, self._callbacks
        self.begin = job.position
        job.expect(len(epochs) * self._per_epoch)
        inner = getattr(self.optimizer, "inner_optimizer", self.optimizer)
        self._iterations = inner._iterations if hasattr(inner, "_iterations") else inner.iterations  # Keras 3.3
        self._begun = int(to_numpy(self._iterations))
        model.stop_training = False
        callbacks.on_train_begin()
        logs: Dict[str, float] = {}
        last: Optional[int] = None  # where other processes have ended this fit
        for number in epochs:
            is_missed = job.is_missed()
            job.quiet.set(is_missed)
            if is_missed and last is None:
                last = job.end_of_fit()
            callbacks.on_epoch_begin(number)
            before = job.position
            job.publish(logs.get("loss", job.last_loss))  # what the program or a callback has set
            self.begin += job.position - before
            first = job.position - self.begin
            for place in range(self._per_epoch):
                self._train_step(first + place, place)
                if model.stop_training or job.is_over or job.position == last:
                    break
            job.bring()
            job.quiet.set(job.quiet.is_on and job.is_missed())
            if not job.is_updater:
                self._iterations.assign(self._begun + job.position - self.begin)
            logs = job.compute_once(f"the logs of epoch {number + 1} of fit {job.fits}", self._logs)
            if validate is not None and is_due(number, validate[0]):
                callbacks.on_test_begin()
                found = validate[1]()
                callbacks.on_test_end(found)
                logs.update({f"val_{name}": value for name, value in found.items()})
            callbacks.on_epoch_end(number, dict(logs))
            if job.is_over:
                break
            job._agree("ends the fit" if model.stop_training else "goes on", f"fit {job.fits} decided")
            if model.stop_training or job.position == last:
                break
        job.tell_end_of_fit()
        if job.is_updater and isinstance(self.optimizer, keras.optimizers.Optimizer):
            self.optimizer.finalize_variable_values(model.trainable_weights)
        callbacks.on_train_end(logs)
        job.last_loss = logs.get("loss", 0.0)
        job.publish(job.last_loss)
        job.bring()

    def _train_step(self, number: int, place: int) -> None:
        source, job, callbacks = self._source, self._job, self._callbacks
        if number % source.batches == 0:
            source.begin_pass(number // source.batches)
        callbacks.on_train_batch_begin(place)
        has_weights = job.step()
        job.enter()  # nobody is late while the first step is compiled
        if has_weights is None:
            return
        if has_weights:
            if self._sees_weights:
                job.bring()
            callbacks.on_train_batch_end(place, self._logs() if self._shows_batches else {})
        else:
            for one in callbacks.callbacks:
                if not isinstance(one, (keras.callbacks.TerminateOnNaN, keras.callbacks.ModelCheckpoint)):
                    one.on_train_batch_end(place, Missed())
        if (number + 1) % source.batches == 0:
            source.end_pass(number // source.batches)

    def _logs(self) -> Dict[str, float]:
        """Of the epoch so far."""
        return self._stepper.results(self._values[self._sums])


def _has_hook(callback: Any, name: str) -> bool:
    """LambdaCallback sets them in the object."""
    def is_own(name: str) -> bool:
        hook = getattr(callback, name)
        return getattr(hook, "__func__", hook) is not getattr(keras.callbacks.Callback, name)

    return is_own(f"on_{name}") or is_own(f"on_train_{name}")


def _sees_weights(callback: Any) -> bool:
    """Within an epoch."""
    if isinstance(callback, keras.callbacks.ModelCheckpoint):
        return callback.save_freq != "epoch" or type(callback) is not keras.callbacks.ModelCheckpoint
    is_kerass = type(callback).__module__.split(".")[0] == "keras"
    return (_has_hook(callback, "batch_begin") or _has_hook(callback, "batch_end")) and (
        not is_kerass or isinstance(callback, keras.callbacks.LambdaCallback))


def seed_generators(model: Any, seed: int) -> None:
    """The state of random layers, which would otherwise run on from slice to slice."""
    found = {id(one): one for layer in model._flatten_layers() for one in getattr(layer, "_seed_generators", [])}
    for i, one in enumerate([*found.values(), _global_generator()]):
        if one is not None:
            one.state.assign(np.array([seed_of(seed, i, 0) & 0x7FFFFFFF, 0], str(one.state.dtype)))


def _global_generator() -> Any:
    try:
        from keras.src.random.seed_generator import global_seed_generator
    except ImportError:
        return None
    return global_seed_generator()


def is_due(epoch: int, frequency: Any) -> bool:
    return (epoch + 1) % frequency == 0 if isinstance(frequency, int) else epoch + 1 in frequency


# ------------------------------------------------------------------------------------------ fit


def fit(job: KerasJob, model: Any, x: Any, y: Any, batch_size: Optional[int], epochs: int, verbose: Any,
        callbacks: Any, validation_split: float, validation_data: Any, shuffle: bool, class_weight: Any,
        sample_weight: Any, initial_epoch: int, steps_per_epoch: Optional[int], validation_steps: Optional[int],
        validation_batch_size: Optional[int], validation_freq: Any) -> Any:
    model._assert_compile_called("fit")
    job.refuse_inside("fit")
    if job.is_over:
        job.print("muster: the run is over, so this fit is left out")
        return getattr(model, "history", None) or keras.callbacks.History()
    job.is_fitting = True
    if validation_split and validation_data is None:
        (x, y, sample_weight), validation_data = _split((x, y, sample_weight), validation_split)
    source = _keras_data.make(x, y, sample_weight, batch=batch_size, steps=steps_per_epoch, shuffle=shuffle,
                              seed=seed_of(job.seed, job.fits, 7), class_weight=class_weight,
                              check=lambda number, text: _compare(job, number, text))
    per_epoch = steps_per_epoch or source.batches
    if not isinstance(epochs, int) or epochs <= initial_epoch:
        raise UsageError(f"fit(epochs={epochs}, initial_epoch={initial_epoch}): expected at least one epoch")
    _, _, batch = source.slice(0, 0, slices())
    stepper = _stepper(job, model, source, "train")
    verbose = _verbose(job, verbose)
    listed = keras.callbacks.CallbackList(_ours(job, callbacks), add_history=True, add_progbar=verbose != 0,
                                          verbose=verbose, epochs=epochs, steps=per_epoch, model=model)
    one = Fit(job, model, source, stepper, listed, per_epoch)
    is_first = job.variables is None
    statistics = {id(variable) for variable in stepper.statistics}
    weights = sorted(model.weights, key=lambda variable: id(variable) not in statistics)
    if not is_first:
        job.bind(weights)
    else:
        job.join(one, weights, 2 + stepper.sums_size, source.batch or batch, per_epoch, _arithmetic())
    one.set_up()
    job.begin(one, stepper.statistics)
    if not job.is_updater and not job.compare(f"data of fit {job.fits}", source.sample()):
        raise UsageError("fit got other data in this process than in another one: import muster.keras before the "
                         "program draws random numbers, or seed them")
    validate = None
    if validation_data is not None:
        parts = _keras_data._as_tuple(validation_data if isinstance(validation_data, (tuple, list))
                                      else [validation_data])
        validation = _keras_data.make(*parts, batch=validation_batch_size or batch_size, steps=validation_steps,
                                      shuffle=False, seed=seed_of(job.seed, job.fits, 8))
        tester = _stepper(job, model, validation, "test")
        validate = validation_freq, lambda: evaluate_on(job, tester, validation, validation_steps)
    one.run(range(initial_epoch, epochs), validate)
    job.fits += 1
    after = seed_of(job.seed, job.fits, 6)  # what follows draws the same numbers in all processes
    _job.seed_all(after)
    seed_generators(model, after)
    job.is_fitting = False
    job.leave_fit()
    return model.history


def _stepper(job: KerasJob, model: Any, source: _keras_data.Source, kind: str) -> Stepper:
    """That of an earlier call, unless the model has been compiled or frozen since then."""
    now = [model, model.optimizer, model._compile_metrics, model._compile_loss, *model.trainable_variables]
    before, known = job.steppers.get(kind, ([], Stepper(model)))
    if len(now) == len(before) and all(one is other for one, other in zip(now, before)):
        return known
    stepper = Stepper(model)
    _job.seed_all(job.seed)
    seed_generators(model, job.seed)
    data, count, _ = source.slice(0, 0, slices())
    stepper.build(data if count else source.whole(0)[0], trains=kind == "train")
    now[2:4] = model._compile_metrics, model._compile_loss  # made by build
    job.steppers[kind] = now, stepper
    return stepper


def _split(data: Any, share: float) -> Any:
    """The last part of arrays is for validation."""
    arrays = keras.tree.map_structure(lambda one: None if one is None else np.asarray(one), data)
    size = len(next(one for one in keras.tree.flatten(arrays) if one is not None))
    at = int(size * (1 - share))
    if not 0 < at < size:
        raise UsageError(f"fit(validation_split={share}) of {size} samples leaves no samples for one of the two sets")
    return tuple(keras.tree.map_structure(lambda one: None if one is None else one[part], arrays)
                 for part in (slice(0, at), slice(at, size)))


def _compare(job: KerasJob, number: int, text: bytes) -> None:
    if not job.is_updater and not job.compare(f"data of fit {job.fits}, batch {number}", text):
        raise UsageError("the tf.data.Dataset gives this process other batches than the others: expected "
                         "shuffle(..., seed=...) and no random numbers without a seed")


def _verbose(job: KerasJob, verbose: Any) -> int:
    """Only rank 0, whose output the terminal shows, has a progress bar: lines where there is no terminal."""
    if job.rank != 0 and not job._client.is_alone:
        return 0
    if verbose == "auto" or verbose == 1:
        return 1 if sys.stdout.isatty() else 2
    return int(verbose)


def _ours(job: KerasJob, callbacks: Any) -> List[Any]:
    """The program's, without those whose work is done by the job or by another process."""
    kept = []
    given = list(callbacks) if isinstance(callbacks, (list, tuple)) else [] if callbacks is None else [callbacks]
    for one in keras.tree.flatten(given):
        if type(one).__name__ == "SwapEMAWeights":
            raise UsageError("SwapEMAWeights cannot be used, because only one process has the averages: expected "
                             "use_ema with ema_overwrite_frequency, or the averages at the end of fit")
        if isinstance(one, keras.callbacks.BackupAndRestore):
            job.print("muster: BackupAndRestore is left out: the run directory has checkpoints, and muster launch "
                      "--resume continues from them")
        elif job.is_updater or job.is_alone or not isinstance(
                one, (keras.callbacks.CSVLogger, keras.callbacks.TensorBoard)):
            kept.append(one)
    return kept


def _arithmetic() -> str:
    if IS_TENSORFLOW:
        from muster import _tensorflow
        return _tensorflow.describe()
    import torch
    from muster import _arithmetic
    return f"{_arithmetic.describe(torch.device('cuda' if torch.cuda.is_available() else 'cpu'))}, keras " \
        f"{keras.__version__}"


# ------------------------------------------------------------------------- evaluate and predict


def evaluate_on(job: KerasJob, stepper: Stepper, source: _keras_data.Source, steps: Optional[int] = None
                ) -> Dict[str, float]:
    """All processes together. Each begins with the parts whose slices it had, and computes others only if their
    process is lost."""
    count = steps or source.batches
    source.begin_pass(0)
    parts = np.array_split(np.arange(count), min(slices(), count))

    def sums(batches: Any) -> List[float]:
        total = np.zeros(stepper.sums_size, np.float64)
        for number in batches:
            data, samples = source.whole(int(number))
            total += stepper.sums(stepper.test(data), samples)
        return [float(one) for one in total]

    mine = sorted(index for index in job._taken if index < len(parts))
    found: Dict[int, List[float]] = {}
    computed: Dict[int, List[float]] = {}

    def piece(index: int, begin: int) -> List[float]:
        if index not in computed:
            computed[index] = sums(parts[index])
        return computed[index][begin:begin + _PIECE]

    for index in mine + [one for one in range(len(parts)) if one not in mine]:
        found[index] = []
        for begin in range(0, stepper.sums_size, _PIECE):
            found[index] += job.compute_once(f"evaluate, part {index} from {begin}",
                                             functools.partial(piece, index, begin))
    source.end_pass(0)
    total = np.sum([found[index] for index in range(len(parts))], axis=0)
    return job.compute_once("the result of evaluate", lambda: stepper.results(total.astype(np.float32)))


def evaluate(job: KerasJob, model: Any, x: Any, y: Any, batch_size: Optional[int], verbose: Any, sample_weight: Any,
             steps: Optional[int], callbacks: Any, return_dict: bool) -> Any:
    model._assert_compile_called("evaluate")
    job.variables.refuse_past("evaluate", model.weights)  # type: ignore[union-attr]
    job.enter()
    source = _keras_data.make(x, y, sample_weight, batch=batch_size, steps=steps, shuffle=False,
                              seed=seed_of(job.seed, job.fits, 9))
    stepper = _stepper(job, model, source, "test")
    listed = keras.callbacks.CallbackList(_ours(job, callbacks), add_progbar=False, verbose=0, epochs=1,
                                          steps=steps or source.batches, model=model)
    listed.on_test_begin()
    logs = evaluate_on(job, stepper, source, steps)
    listed.on_test_end(logs)
    if _verbose(job, verbose):
        shown = " - ".join(f"{name}: {value:.4f}" for name, value in logs.items())
        print(f"{steps or source.batches}/{steps or source.batches} - {shown}", flush=True)
    job.leave_fit()
    return logs if return_dict else model._flatten_metrics_in_order(logs)


def predict(job: KerasJob, model: Any, plain: Any, *args: Any, **options: Any) -> Any:
    """Small results are the same in all processes, and those that lack the weights get them, too."""
    job.variables.refuse_past("predict", model.weights)  # type: ignore[union-attr]
    job.enter()

    def compute() -> Any:
        result = plain(model, *args, **options)
        if not isinstance(result, np.ndarray) or result.nbytes > _PREDICTIONS:
            return None
        return [str(result.dtype), list(result.shape), base64.b64encode(result.tobytes()).decode()]

    small = job.compute_once("predict", compute)
    job.leave_fit()
    if small is not None:
        return np.frombuffer(base64.b64decode(small[2]), small[0]).reshape(small[1]).copy()
    if not job.bring():
        raise UsageError("predict was called at a moment whose weights this process has missed: expected a call after "
                         "the last fit, or strategy.once(function), whose result all processes get")
    return plain(model, *args, **options)


