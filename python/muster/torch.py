"""Trains a PyTorch model with the same bits on any number of workers.

    from muster.torch import job
    model, optimizer, loader, scheduler = job.prepare(model, optimizer, loader, scheduler)
    for epoch in job.epochs(10):
        for x, y in loader:
            optimizer.zero_grad()
            loss_function(model(x), y).backward()
            optimizer.step()
        scheduler.step()
        accuracy = job.once(test, model, test_loader)

The loader gives this process's slices of each batch, whose size is the loader's. backward computes
the gradient of a slice, which goes to the server while backward continues. The server adds the
gradients of all slices and updates the weights with the optimizer's settings; optimizer.step() only
says that a slice is complete. The body runs once per slice, so a process may run it several times
in a step, or not at all. muster.torch.Job(...) makes the job with settings.

The explicit form has a loop over steps, whose body runs once per step in every process:

    job.prepare(model, optimizer)
    for step in job.steps(train_set):
        for x, y in step:
            step.backward(loss_function(model(x), y))
        optimizer.step()
        scheduler.step()

With prepare(..., update="program"), the program's own optimizer updates the weights, in a process
of its own.
"""

import ctypes
import os
import types
from typing import Any, Callable, Iterator, List, Optional

import torch

from muster import _arithmetic, _client, _contents, _data, _job
from muster._client import UsageError, Work
from muster._evaluate import evaluate
from muster._gradients import Gradients
from muster._guard import Guard
from muster._loop import Loop
from muster._optimizer import Plan, Unsupported
from muster._own_update import OwnUpdate
from muster._script import write
from muster._shared import Epoch, seed_torch

seed_torch(torch)
job: "Job"  # made when it is first needed (__getattr__)


class Step(_job.Step):
    __doc__ = f"{_job.Step.__doc__}\n    A slice is a batch of the data set, on the job's device."
    _job: "Job"

    def backward(self, loss: torch.Tensor, *, weight: Any = None, reduction: Optional[str] = None, last: bool = True,
                 **means: Any) -> None:
        """Adds the gradient of this loss, the mean over the slice's samples, and reports it.

        ``weight``: what the slice counts instead of its samples, where the loss is a mean over
        something else whose number varies, such as the tokens that are not padding. The step's
        gradient is that of the mean over all of them. All slices have a weight, or none; with 0,
        the loss may be NaN. ``reduction="sum"``: the loss is a sum over the samples, and the step's
        gradient that of the sum over the batch. Without both, losses that are known to be no mean
        over the samples are refused; with reduction="mean" they are taken as they are.
        ``means`` are other values to report, such as accuracy=0.9: means over the samples, too.
        For several calls in a slice, whose loss is then the sum, say ``last=False`` in all but the
        last, or in all of them: gradients are sent while the last one computes.
        """
        self._job._gradients.backward(loss, weight, reduction, last, means)


class Job(_job.Job):
    """This process's part in a job. ``config`` is for a program that was not started by ``muster
    launch``: it then trains alone, with a server of its own.

    ``batch_size`` (of all processes together) and ``epochs`` count where the config says nothing of
    them, or where there is none. ``clip_norm`` limits the norm of each step's gradient, as
    torch.nn.utils.clip_grad_norm_ does. ``precision="fp16"`` scales the loss, as GradScaler does, for
    torch.autocast with torch.float16, on GPUs without bfloat16; "tf32" lets GPUs multiply in TF32.
    ``repeat=False`` leaves out the slices that are computed twice and compared, and
    ``deterministic=False`` what makes GPUs repeat their bits (docs/GPU_PROGRAMS.md).

    ``import muster.torch`` seeds torch with run.seed, and Job() seeds NumPy and Python, unless the
    program has done so.

    ``device`` is where slices go: the GPU that ``muster launch`` has chosen for this process, or
    the CPU. Move the model there before prepare.
    """

    _step = Step

    def __init__(self, config: Optional[str] = None, *, batch_size: Optional[int] = None,
                 epochs: Optional[int] = None, clip_norm: Optional[float] = None, repeat: bool = True,
                 precision: Optional[str] = None, deterministic: bool = True) -> None:
        if precision not in (None, "fp16", "tf32"):
            raise UsageError(f"Job(precision={precision!r}): expected \"fp16\", for torch.autocast with "
                             f"torch.float16, \"tf32\" or None; bfloat16 needs no setting")
        _arithmetic.set_up(precision, deterministic)
        super().__init__(config, batch_size=batch_size, epochs=epochs)
        self._client.set_loss_scaling(precision == "fp16")
        self._precision, self._is_deterministic = precision, deterministic
        self._operators = _arithmetic.Operators()
        if clip_norm is not None and not clip_norm > 0:
            raise UsageError(f"Job(clip_norm={clip_norm!r}): expected a number above 0")
        self._clip_norm = clip_norm
        self._repeats = repeat
        if threads := os.environ.get("OMP_NUM_THREADS"):
            torch.set_num_threads(int(threads))
        _keep_freed_memory()
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._model: Optional[torch.nn.Module] = None
        self._loader: Optional[_data.Loader] = None
        self._own: Optional[OwnUpdate] = None  # with update="program"
        self._loop: Optional[Loop] = None  # of the flat form
        self._guard: Optional[Guard] = None
        self._is_computing = False  # what job.once was given

    # ------------------------------------------------------------------------------- preparation

    def prepare(self, model: torch.nn.Module, optimizer: Any = None, *others: Any,
                update: Optional[str] = None) -> Any:
        """Makes the job train this model, in place, and returns what it was given, for the program's
        loop. Others: the DataLoader of the training set, and schedulers of the learning rate.

        With an optimizer, the server uses its type and settings, and in every step the learning
        rate of its parameter groups; the config then has no learning_rate. Without one, the config
        has optimizer and learning_rate.

        With update="program", any optimizers of torch.optim.Optimizer update the weights, and the
        body of the loop over steps may change the gradients before. One more process runs the
        program for this, on the server's host and CPU (is_updater). It gets no slices; after its
        inner loop, p.grad is the mean gradient of the batch. In the other processes, and in missed
        steps, p.grad has no meaning, and optimizer.step() changes nothing. With a loader, this is
        chosen for an optimizer that the server does not have, and for schedulers of the momentum.

        Afterwards the program must not change parameters, their memory or requires_grad. Frozen
        parameters and other buffers must be the same in every process.
        """
        if self._model is not None:
            raise UsageError("prepare was called twice: a job trains one model; give it one module that "
                             "holds all of them (docs/OWN_MODEL.md has a GAN)")
        if update not in (None, "server", "program"):
            raise UsageError(f"prepare(update={update!r}): expected \"server\" or \"program\"")
        given = model = _data.unwrapped(model)
        self._model = model = getattr(model, "_orig_mod", model)  # torch.compile adds a prefix
        everything = (optimizer, *others)
        optimizer = next((one for one in everything if isinstance(one, torch.optim.Optimizer)), optimizer)
        if others or isinstance(optimizer, torch.utils.data.DataLoader):
            self._loop = Loop(self, optimizer, everything)
        plan = self._plan(model, optimizer, update)
        self._gradients = Gradients(self, model, plan, self._repeats,
                                    "step.backward" if self._loop is None else "job.backward")
        if plan is not None:
            self._client.set_optimizer(plan.text, plan.learning_rate())
            self._replace_step(plan.optimizer)
        _arithmetic.set_up(self._precision, self._is_deterministic)  # what the program has changed since
        if self._is_deterministic:
            self._client.set_arithmetic(_arithmetic.describe(next(model.parameters()).device))
        self._guard = Guard(model, self._loop)
        if self._loop is not None:
            return (given, *self._loop.prepared)
        return given if optimizer is None else (given, optimizer)

    def _plan(self, model: torch.nn.Module, optimizer: Any, update: Optional[str]) -> Optional[Plan]:
        cycles = self._loop is not None and self._loop.cycles_momentum and update is None
        if update != "program" and optimizer is not None and not cycles:
            try:
                return Plan(model, optimizer, self._clip_norm)
            except Unsupported:
                if update == "server" or self._loop is None:
                    raise
        if update == "program" or optimizer is not None:
            self._own = OwnUpdate(self, optimizer)
            for one in self._own.optimizers:
                self._replace_step(one)
        elif self._clip_norm is not None:
            raise UsageError("Job(clip_norm=...) and prepare without an optimizer: expected optimizer { "
                             "clip_norm } in the config, which has the optimizer")
        return None

    # Only the process that updates the weights, if there is one, runs the optimizer.
    def _replace_step(self, optimizer: torch.optim.Optimizer) -> None:
        plain = optimizer.step

        def step(this: Any, *args: Any, **kwargs: Any) -> Any:
            _refuse_step(self, args, kwargs)
            if self._loop is not None and self._work is not None:
                assert self._guard is not None
                self._gradients.complete(self._work)
                self._guard.set(True)
                return None
            return plain(*args, **kwargs) if self._is_updating else None

        # Schedulers check the order of the calls.
        step._wrapped_by_lr_sched = True  # type: ignore[attr-defined]
        optimizer._opt_called = True  # type: ignore[attr-defined]
        optimizer.step = types.MethodType(step, optimizer)  # type: ignore[method-assign]

    def keep(self, **objects: Any) -> None:
        """Saves these objects in checkpoints, with update="program": by state_dict(), of tensors,
        numbers, strings, lists and dictionaries. When the run is resumed, load_state_dict() gets it
        before the first update. Only the process that updates the weights does both; its objects
        alone have seen all updates."""
        if self._own is None:
            raise UsageError("keep: expected prepare(..., update=\"program\") before")
        self._own.keep(objects)

    def evaluate(self, loader: Any, function: Callable[..., Any]) -> Any:
        """Evaluates between epochs, with all processes together, which get the same result: the means
        over the data set of what the function returns for a batch, a mean or a dictionary of means.
        The model is in evaluation mode, and there are no gradients."""
        return evaluate(self, loader, function)

    def evaluation(self, dataset: Any, function: Callable[..., Any], *, validation: bool = False,
                   collate: Optional[Callable[[List[Any]], Any]] = None) -> None:
        """Has this test set (or validation set) evaluated when the config says so.

        ``function(x, y)`` is called with batches of it, with the model in evaluation mode and
        without gradients. It returns the mean loss, or a dictionary of means with a "loss".
        """
        if isinstance(dataset, torch.utils.data.DataLoader):
            dataset, collate = _data.evaluated(dataset), collate or dataset.collate_fn
        kind = _client.VALIDATION_BLOCK if validation else _client.TEST_BLOCK
        self._evaluate_on(kind, _data.Samples(dataset, collate), function)

    def steps(self, dataset: Any, *, workers: int = 0, prefetch: int = 2,
              collate: Optional[Callable[[List[Any]], Any]] = None) -> _job.Steps:
        """Joins the job, and returns its steps.

        ``dataset`` is a map-style data set, a tuple of tensors or a DataLoader, whose settings count
        then. ``workers``: processes that load slices ahead of time, ``prefetch`` slices each.
        ``collate``: as in DataLoader.
        """
        if self._model is None:
            raise UsageError("steps: call prepare first")
        if isinstance(dataset, torch.utils.data.DataLoader):
            source = _data.Source.of(dataset)
            self._client.set_run(self._batch or source.batch, self._epochs)
            self._client.set_drop_last(source.drop_last)
            self._client.set_in_order(source.in_order)
        else:
            source = _data.Source(dataset, collate, {"num_workers": workers, "prefetch_factor": prefetch})
        self._source = source
        self._gradients.take_values()
        return self._join(_data.Samples(source.dataset, source.collate))

    def epochs(self, *bounds: int) -> Iterator[Epoch]:
        """The epochs of the run, as range(*bounds) would give them, for a program that has given its
        DataLoader to prepare. Their number counts where neither the config nor Job says it."""
        return self._flat("epochs").epochs(*bounds)

    def backward(self, loss: torch.Tensor, *, weight: Any = None, reduction: Optional[str] = None, last: bool = True,
                 **means: Any) -> None:
        """Adds the gradient of this loss, the mean over the slice's samples, and reports it, as
        Step.backward does."""
        self._flat("backward")
        self._gradients.backward(loss, weight, reduction, last, means)

    def save(self, value: Any, path: Any, *args: Any, **options: Any) -> None:
        """torch.save in one process, which has the weights of this moment. The file is complete or as
        it was before. Not within a slice. With a loader, torch.save itself does this."""
        self._once(f"save {os.path.basename(path)}", lambda: write(value, path, *args, **options))

    def _flat(self, name: str) -> Loop:
        if self._loop is None:
            raise UsageError(f"job.{name}: expected job.prepare(model, optimizer, loader) before; without a "
                             f"loader, job.steps is the loop, and step.{name} computes gradients")
        return self._loop

    def _joined(self) -> _client.Client:
        if self._loop is not None:
            self._loop.join()
            self._loop.refuse_left()
        return super()._joined()

    # --------------------------------------------------------------------------------- the loop

    def _size(self, dataset: _data.Samples) -> int:
        return len(dataset)

    def _ready(self, dataset: _data.Samples) -> None:
        self._loader = _data.Loader(dataset, self._client, {} if self._updates else self._source.options)

    def _begin(self, work: Work) -> Any:
        assert self._loader is not None and self._guard is not None
        gradients = self._gradients
        self._guard.set(False)
        data = _data.to_device(self._loader.load(work, ahead=not gradients.is_check), self.device)
        gradients.bring(work.step)
        gradients.begin()
        _job.seed_all(work.seed ^ 1)  # other numbers than those of the data
        return data

    def _end(self, work: Work) -> None:
        self._gradients.end(work)

    def _moved(self) -> None:
        if self._guard is None:
            return
        position = self._shared.position
        if not self._updates and self._holds == position and self._gradients.version != position:
            self._gradients.bring(position)
        lacks = not self._updates and self._holds != position
        self._guard.set(lacks or self._loop is not None and self._loop.is_between,
                        is_early=self._loop is not None and self._loop.is_open)

    def _alone(self, function: Callable[[], Any]) -> Any:
        assert self._model is not None and self._guard is not None
        self._gradients.bring(self._shared.position)
        modes = _contents.Modes(self._model)
        self._is_computing = True
        try:
            with self._guard.off(), self._gradients.aside():
                return function()
        finally:
            self._is_computing = False
            modes.restore()

    def _repeated(self) -> Optional[Work]:
        must = self._loop is not None and self._loop.must_repeat()
        self._work = self._gradients.repeated(self._pending, must)
        return self._work

    # ------------------------------------------------------------------------ update="program"

    def _after_slices(self) -> None:
        if self._own is not None and self._loop is None and not self._is_updating:
            self._own.give_gradients()

    def _settle(self) -> None:
        if self._model is not None:
            self._gradients.settle()
        for name in self._operators.take():
            self._client.tell(f"bits:{name}", self._shared.position,
                              f"torch's {name} is not deterministic on this GPU".encode())

    def _missed_steps_end(self) -> None:
        if self._own is not None:
            self._own.missed_steps_end()

    def _begin_update(self, work: Work) -> None:
        assert self._own is not None and self._guard is not None
        self._guard.set(False)
        self._own.begin()
        self._gradients.bring_statistics()

    def _end_update(self) -> None:
        assert self._own is not None
        self._is_updating = False
        self._own.end()

    def _save(self) -> None:
        assert self._own is not None
        self._own.save()

    def _evaluate(self, work: Work, dataset: _data.Samples, function: Callable[..., Any]) -> Any:
        assert self._model is not None and self._guard is not None
        self._gradients.version = -1  # the weights may be an average
        self._gradients.bring(work.step)
        self._gradients.version = -1
        data = _data.to_device(dataset[work.seed, work.samples], self.device)
        _job.seed_all(work.seed ^ 1)
        modes = _contents.Modes(self._model)
        self._model.eval()
        try:
            with torch.no_grad(), self._guard.off():
                return _data.call(function, data)
        finally:
            modes.restore()

    def _leave(self) -> None:
        if self._loop is not None and self._loop.is_complete():
            self._loop.end()

    def _has_lost_helper(self) -> bool:
        return self._loader is not None and self._loader.has_lost_worker()

    def _finish(self) -> None:
        self._gradients.free()
        self._moved()


def _refuse_step(job: Job, args: Any, kwargs: Any) -> None:
    if args or kwargs.get("closure") is not None:
        raise UsageError("optimizer.step(closure): the weights are updated after the step's "
                         "slices, so the closure cannot be called")
    if job._work is not None and job._loop is None:
        raise UsageError("optimizer.step() was called within a slice: call it once for each "
                         "step, after the inner loop")


def _keep_freed_memory() -> None:
    """Gradients of many megabytes are allocated anew in every slice. Without this, each would be
    new pages of the kernel."""
    m_trim_threshold, m_mmap_max = -1, -4  # malloc.h
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, TypeError):
        return  # another C library, or Windows
    mallopt(m_trim_threshold, 2**31 - 1)
    mallopt(m_mmap_max, 0)


def __getattr__(name: str) -> Any:
    """``from muster.torch import job``: this process's job, made when it is first needed."""
    if name != "job":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return _job.current() or Job()
    except AttributeError as error:  # `from … import job` would only say that there is none
        raise RuntimeError(f"muster.torch.job could not be made: {error}") from error
