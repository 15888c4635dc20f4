"""Trains a PyTorch model with the same bits on any number of workers.

    job = muster.torch.Job()
    job.prepare(model, optimizer)
    job.evaluation(test_set, evaluate)
    for step in job.steps(train_set):
        for x, y in step:
            step.backward(loss_function(model(x), y))
        optimizer.step()
        scheduler.step()

An iteration of the outer loop is one step of the whole job. The inner loop gives this process's
slices of the step's batch, whose size is run.global_batch in the config. step.backward computes the
gradient of a slice, which goes to the server while backward continues. The server adds the gradients
of all slices and updates the weights with the optimizer's settings; optimizer.step() itself changes
nothing here, but schedulers work as usual. With prepare(..., update="program"), the program's own
optimizer updates the weights instead, in a process of its own.
"""

import ctypes
import io
import os
import threading
import types
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple, Union

import numpy as np
import torch

from muster import _client, _contents, _data, _job
from muster._client import UsageError, Work
from muster._optimizer import Plan


class Step(_job.Step):
    __doc__ = f"{_job.Step.__doc__}\n    A slice is a batch of the data set, on the job's device."
    _job: "Job"

    def backward(self, loss: torch.Tensor, *, last: bool = True, **means: Any) -> None:
        """Adds the gradient of this loss, the mean over the slice's samples, and reports it.

        ``means`` are other values to report, such as accuracy=0.9: means over the samples, too.
        For several calls in a slice, whose loss is then the sum, say ``last=False`` in all but the
        last, or in all of them: gradients are sent while the last one computes.
        """
        self._job._backward(loss, last, means)


class _Taken(torch.Tensor):
    """The gradient of a parameter after Muster has taken it."""

    _allowed = {torch.Tensor.zero_, torch.Tensor.detach_, torch.Tensor.requires_grad_}

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function in cls._allowed:
            return args[0]
        raise UsageError(
            "the program used a parameter's grad: it has gone to the server, which adds and applies "
            "the gradients of all slices. For clip_grad_norm_, set optimizer.clip_norm in the config, or "
            "use prepare(..., update=\"program\"); instead of GradScaler, use bfloat16, which needs no "
            "scaling")


class _Parameter:
    """A parameter of the model, and its place in the job."""

    def __init__(self, name: str, tensor: torch.nn.Parameter, number: int) -> None:
        self.name = name
        self.tensor = tensor
        self.number = number
        self.version = tensor._version
        self.weights = self.gradient = torch.empty(0)  # in the job's memory
        self.hook: Any = None
        self.is_used = False  # in any slice so far
        self.is_seen = self.is_pushed = False  # in this slice
        self.before: Optional[torch.Tensor] = None  # the weights before missed steps
        self.spare: Optional[torch.Tensor] = None  # a gradient without a meaning
        # No memory: all elements are the same one.
        self.taken = torch.zeros((), dtype=tensor.dtype, device=tensor.device).expand(
            tensor.shape).as_subclass(_Taken)


class Job(_job.Job):
    """This process's part in a job. ``config`` is for a program that was not started by ``muster
    launch``: it then trains alone, with a server of its own.

    ``batch_size`` (of all processes together) and ``epochs`` count where the config says nothing of
    them, or where there is none.

    ``device`` is where slices go: the GPU that ``muster launch`` has chosen for this process, or
    the CPU. Move the model there before prepare.
    """

    _step = Step

    def __init__(self, config: Optional[str] = None, *, batch_size: Optional[int] = None,
                 epochs: Optional[int] = None) -> None:
        super().__init__(config, batch_size=batch_size, epochs=epochs)
        if threads := os.environ.get("OMP_NUM_THREADS"):
            torch.set_num_threads(int(threads))
        _keep_freed_memory()
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._parameters: List[_Parameter] = []
        self._model: Optional[torch.nn.Module] = None
        self._learning_rate: Optional[Callable[[], float]] = None
        self._loader: Optional[_data.Loader] = None
        self._in_backward = False
        self._pushing = threading.Lock()  # backward has a thread for each device
        self._has_named_unused = False
        self._optimizers: List[torch.optim.Optimizer] = []  # with update="program"
        self._kept: Dict[str, Any] = {}
        self._is_restored = self._is_checked = False

    # ------------------------------------------------------------------------------- preparation

    def prepare(self, model: torch.nn.Module,
                optimizer: Union[None, torch.optim.Optimizer, Sequence[torch.optim.Optimizer]] = None,
                *, update: str = "server") -> None:
        """Makes the job train this model, in place.

        With an optimizer, the server uses its type and settings, and in every step the learning
        rate of its parameter groups; the config then has no learning_rate. Without one, the config
        has optimizer and learning_rate.

        With update="program", any optimizers of torch.optim.Optimizer update the weights, and the
        body of the outer loop may change the gradients before. One more process runs the program
        for this, on the server's host and CPU (is_updater). It gets no slices; after its inner loop,
        p.grad is the mean gradient of the batch. In the other processes, and in missed steps, p.grad
        has no meaning, and optimizer.step() changes nothing.

        Afterwards the program must not change parameters, their memory or requires_grad. Frozen
        parameters and other buffers must be the same in every process.
        """
        if self._model is not None:
            raise UsageError("prepare was called twice: a job trains one model")
        model = getattr(model, "_orig_mod", model)  # torch.compile adds a prefix
        self._model = model
        if update not in ("server", "program"):
            raise UsageError(f"prepare(update={update!r}): expected \"server\" or \"program\"")
        plan = None
        if update == "program":
            self._use_program(optimizer)
        elif optimizer is not None:
            plan = Plan(model, optimizer)
        add = self._client.add_variable
        # Gradients are sent from the last variable to the first. Statistics are complete last.
        self._statistics = [(buffer, add(name, tuple(buffer.shape), averaged=True))
                            for name, buffer in _statistics(model)]
        for name, tensor in model.named_parameters():
            if not tensor.requires_grad:
                continue
            if tensor.dtype != torch.float32:
                raise UsageError(f"parameter {name} is {tensor.dtype}: expected float32; for mixed "
                                 f"precision, keep it so and use torch.autocast")
            if tensor.is_meta or isinstance(tensor, torch.nn.UninitializedParameter):
                raise UsageError(f"parameter {name} has no values yet: expected a complete model")
            options: Dict[str, Any] = plan.options[tensor] if plan is not None else {}
            number = add(name, tuple(tensor.shape), **options)
            self._parameters.append(_Parameter(name, tensor, number))
        if plan is not None:
            self._client.set_optimizer(plan.text, plan.learning_rate())
            self._learning_rate = plan.learning_rate
            self._replace_step(plan.optimizer)
        for one in self._parameters:
            one.weights = self._tensor(self._client.weights(one.number), one.tensor)
            one.gradient = self._tensor(self._client.gradient(one.number), one.tensor)
            one.weights.copy_(one.tensor.detach())
            if one.tensor.device.type == "cpu":
                one.tensor.data = one.weights
            one.hook = one.tensor.register_post_accumulate_grad_hook(  # type: ignore
                self._hook(one))
        self._values = {number: self._tensor(self._client.weights(number), buffer)
                        for buffer, number in self._statistics}
        self._changes = {number: self._tensor(self._client.gradient(number), buffer)
                         for buffer, number in self._statistics}

    def _use_program(self, optimizers: Any) -> None:
        given = optimizers if isinstance(optimizers, (list, tuple)) else [optimizers]
        for one in given:
            if not isinstance(one, torch.optim.Optimizer):
                raise UsageError(f"prepare(update=\"program\") got {type(one).__name__}: expected "
                                 f"one torch.optim.Optimizer or several")
        if not given:
            raise UsageError("prepare(update=\"program\") got no optimizer: expected one or several")
        _refuse_scaler()
        self._optimizers = list(given)
        for one in given:
            self._replace_step(one)
        self._client.set_optimizer("type: PROGRAM", self._shown_rate())

    def _shown_rate(self) -> float:
        rates = (group.get("lr") for group in self._optimizers[0].param_groups)
        return max((float(rate) for rate in rates if rate is not None), default=0.0)

    # Only the process that updates the weights, if there is one, runs the optimizer.
    def _replace_step(self, optimizer: torch.optim.Optimizer) -> None:
        plain = optimizer.step

        def step(this: Any, *args: Any, **kwargs: Any) -> Any:
            self._refuse_step(args, kwargs)
            this._opt_called = True  # schedulers check the order of the calls
            return plain(*args, **kwargs) if self._is_updating else None

        optimizer.step = types.MethodType(step, optimizer)  # type: ignore[method-assign]

    def keep(self, **objects: Any) -> None:
        """Saves these objects in checkpoints, with update="program": by state_dict(), of tensors,
        numbers, strings, lists and dictionaries. When the run is resumed, load_state_dict() gets it
        before the first update. Only the process that updates the weights does both; its objects
        alone have seen all updates."""
        if not self._optimizers:
            raise UsageError("keep: expected prepare(..., update=\"program\") before")
        for name, one in objects.items():
            if not (hasattr(one, "state_dict") and hasattr(one, "load_state_dict")):
                raise UsageError(f"keep({name}=…): {type(one).__name__} has no state_dict and "
                                 f"load_state_dict")
        self._kept.update(objects)

    @staticmethod
    def _tensor(array: np.ndarray, like: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(array).view(like.shape)

    # Weights may have been loaded since prepare.
    def _take_values(self) -> None:
        assert self._model is not None
        known = {id(one.tensor) for one in self._parameters}
        for name, tensor in self._model.named_parameters():
            if tensor.requires_grad and id(tensor) not in known:
                raise UsageError(f"parameter {name} was added or replaced after prepare")
        for one in self._parameters:
            if one.tensor.device.type != "cpu":
                one.weights.copy_(one.tensor.detach())
            one.version = one.tensor._version
        for buffer, number in self._statistics:
            self._values[number].copy_(buffer)
        self._counters = [module._buffers["num_batches_tracked"] for module in self._model.modules()
                          if module._buffers.get("num_batches_tracked") is not None]
        averaged = [buffer for buffer, _ in self._statistics]
        self._constants = _contents.Constants(self._model, averaged + self._counters)
        self._client.set_fingerprint(self._constants.fingerprint)
        self._modes = _contents.Modes(self._model)

    def evaluation(self, dataset: Any, function: Callable[..., Any], *, validation: bool = False,
                   collate: Optional[Callable[[List[Any]], Any]] = None) -> None:
        """Has this test set (or validation set) evaluated when the config says so.

        ``function(x, y)`` is called with batches of it, with the model in evaluation mode and
        without gradients. It returns the mean loss, or a dictionary of means with a "loss".
        """
        kind = _client.VALIDATION_BLOCK if validation else _client.TEST_BLOCK
        self._evaluate_on(kind, _data.Samples(dataset, collate), function)

    def steps(self, dataset: Any, *, workers: int = 0, prefetch: int = 2,
              collate: Optional[Callable[[List[Any]], Any]] = None) -> _job.Steps:
        """Joins the job, and returns its steps.

        ``dataset`` is a map-style data set or a tuple of tensors. ``workers``: processes that load
        slices ahead of time, ``prefetch`` slices each. ``collate``: as in DataLoader.
        """
        if self._model is None:
            raise UsageError("steps: call prepare first")
        self._loading = (workers, prefetch)
        self._take_values()
        return self._join(_data.Samples(dataset, collate))

    # --------------------------------------------------------------------------------- the loop

    def _size(self, dataset: _data.Samples) -> int:
        return len(dataset)

    def _ready(self, dataset: _data.Samples) -> None:
        workers, prefetch = self._loading
        self._loader = _data.Loader(dataset, self._client, 0 if self._updates else workers, prefetch)
        self._version = -1

    def _begin(self, work: Work) -> Any:
        assert self._loader is not None
        data = _to_device(self._loader.load(work), self.device)
        self._bring_weights(work.step)
        self._loss = 0.0
        self._means: Dict[str, float] = {}
        self._is_reported = False
        self._lacks_gradient = True  # or a part of it
        for one in self._parameters:
            tensor = one.tensor
            tensor.grad = None
            one.is_seen = one.is_pushed = False
            on_cpu = tensor.device.type == "cpu"
            if not tensor.requires_grad or tensor._version != one.version or \
                    (on_cpu and tensor.data_ptr() != one.weights.data_ptr()):
                self._refuse_change(one)
        self._modes.check()
        _job.seed_all(work.seed ^ 1)  # other numbers than those of the data
        return data

    # Each slice starts with the statistics of W(step). Parameters on the CPU are in the memory.
    def _bring_weights(self, step: int) -> None:
        for buffer, number in self._statistics:
            buffer.copy_(self._values[number])
        for counter in self._counters:
            counter.fill_(step)
        if self._version == step:
            return
        self._version = step
        for one in self._parameters:
            if one.tensor.device.type != "cpu":
                with torch.no_grad():
                    one.tensor.copy_(one.weights)
                one.version = one.tensor._version

    def _end_of_step(self, number: int) -> None:
        self._bring_weights(number + 1)

    @staticmethod
    def _refuse_change(one: _Parameter) -> None:
        raise UsageError(f"the program has changed parameter {one.name}, its memory or its "
                         f"requires_grad: the server has the weights; do so before prepare, or load "
                         f"values before steps. With update=\"program\", change weights in the body "
                         f"if job.is_updater")

    # ------------------------------------------------------------------------ update="program"

    def _after_slices(self) -> None:
        if not self._optimizers or self._is_updating:
            return
        for one in self._parameters:  # the body expects gradients
            on_cpu = one.tensor.device.type == "cpu"
            if on_cpu and not self._updates:
                one.tensor.grad = one.gradient
                continue
            if self._updates and one.before is None:
                one.before = one.weights.clone()
            if one.spare is None:
                one.spare = torch.zeros_like(one.tensor)
            one.tensor.grad = one.spare

    def _check_parameters(self) -> None:
        assert self._model is not None
        known = {id(one.tensor) for one in self._parameters}
        for name, tensor in self._model.named_parameters():
            if tensor.requires_grad and id(tensor) not in known:
                raise UsageError(f"parameter {name} was added, replaced or unfrozen after prepare")
        frozen = {id(tensor) for tensor in self._model.parameters()}
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                if any(id(tensor) not in frozen for tensor in group["params"]):
                    raise UsageError("an optimizer has a parameter that is not the model's: give prepare "
                                     "one module that holds all of them")

    # What the body did to the weights in missed steps is in them already.
    def _missed_steps_end(self) -> None:
        if not self._updates:
            return
        for one in self._parameters:
            if one.before is not None:
                one.weights.copy_(one.before)
                one.before = None
        if not self._is_restored:
            self._is_restored = True
            self._restore(self._client.state())

    def _begin_update(self, work: Work) -> None:
        self._check_parameters()
        for one in self._parameters:
            one.tensor.grad = one.gradient.clone()  # optimizers may keep it
        for buffer, number in self._statistics:
            buffer.copy_(self._values[number])

    def _end_update(self) -> None:
        self._is_updating = False
        for one in self._parameters:
            one.tensor.grad = None
            if one.tensor.data_ptr() != one.weights.data_ptr():
                one.weights.copy_(one.tensor.detach())
                one.tensor.data = one.weights
        self._client.set_learning_rate(max(0.0, self._shown_rate()))
        self._client.done()

    def _save(self) -> None:
        kept = {name: _plain(one.state_dict()) for name, one in self._kept.items()}
        optimizers = [_plain(one.state_dict()) for one in self._optimizers]
        if not self._is_checked:
            self._is_checked = True
            for number, one in enumerate(optimizers):
                _load(f"optimizer {number}", _pickle(one))
            for name, one in kept.items():
                _load(name, _pickle(one))
        self._client.save(_pickle({"optimizers": optimizers, "kept": kept}))
        self._client.done()

    def _restore(self, state: bytes) -> None:
        if not state:
            return
        values = _load("program.state", state)
        if len(values["optimizers"]) != len(self._optimizers) or \
                set(values["kept"]) != set(self._kept):
            raise UsageError(f"the checkpoint has {len(values['optimizers'])} optimizers and keeps "
                             f"{sorted(values['kept'])}; this program has {len(self._optimizers)} and "
                             f"{sorted(self._kept)}")
        for optimizer, one in zip(self._optimizers, values["optimizers"]):
            optimizer.load_state_dict(one)
        for name, one in values["kept"].items():
            self._kept[name].load_state_dict(one)

    # -------------------------------------------------------------------------------- gradients

    def _backward(self, loss: torch.Tensor, last: bool, means: Dict[str, Any]) -> None:
        work = self._work
        if work is None:
            raise UsageError("backward: expected a call within the inner loop")
        if loss.numel() != 1:
            raise UsageError(f"backward: expected the mean loss of the slice, one number, got shape "
                             f"{tuple(loss.shape)}")
        for name in ("retain_graph", "create_graph", "inputs", "gradient"):
            if name in means:
                raise UsageError(f"backward({name}): expected a loss, and values to report")
        self._lacks_gradient = True
        if self._is_reported:
            raise UsageError("backward was called again in a slice, after its last call: expected "
                             "step.backward(loss, last=False) in all calls but the last, or in all "
                             "of them")
        self._loss += float(loss.detach())
        for name, value in means.items():
            self._means[name] = self._means.get(name, 0.0) + float(value)
        if last:
            self._report(work)
        self._in_backward = True
        try:
            share = len(work.samples) / work.batch
            (loss.float() * share).backward()  # type: ignore[no-untyped-call]
        finally:
            self._in_backward = False
        self._lacks_gradient = False

    def _report(self, work: Work) -> None:
        count = len(work.samples)
        self._add_scalars(self._means, count)
        if self._learning_rate is not None:
            self._client.set_learning_rate(self._learning_rate())
        self._client.report(self._loss * count)
        self._is_reported = True

    def _hook(self, one: _Parameter) -> Callable[[torch.Tensor], None]:
        def take(parameter: torch.Tensor) -> None:
            if not self._in_backward:
                raise UsageError("loss.backward() was called on a model of a job: call "
                                 "step.backward(loss) instead")
            if one.is_pushed:
                raise UsageError(f"parameter {one.name} got two gradients in one backward: use "
                                 f"checkpoint(…, use_reentrant=False)")
            one.is_seen = True
            if self._is_reported:  # no other call follows
                self._copy_gradient(one)
                with self._pushing:
                    self._client.push(one.number)

        return take

    @staticmethod
    def _copy_gradient(one: _Parameter) -> None:
        gradient = one.tensor.grad
        assert gradient is not None
        one.gradient.copy_(gradient.to_dense() if gradient.is_sparse else gradient)
        one.tensor.grad = one.taken
        one.is_pushed = one.is_used = True

    def _end(self, work: Work) -> None:
        if self._lacks_gradient:
            raise UsageError("a slice has no gradient: call step.backward for each one, and let its "
                             "errors end the program")
        self._constants.check(work.step)
        self._modes.restore()
        if not self._is_reported:
            self._report(work)
        share = len(work.samples) / work.batch
        for buffer, number in self._statistics:
            self._changes[number].copy_(buffer * share)
        for one in self._parameters:
            gradient = one.tensor.grad
            if (one.is_pushed and gradient is not one.taken) or (one.is_seen and gradient is None):
                raise UsageError(f"the program has changed or cleared the gradient of {one.name} "
                                 f"within a slice: call optimizer.step() and zero_grad() after the "
                                 f"inner loop")
            if gradient is None:
                one.gradient.zero_()
            elif not one.is_pushed:
                self._copy_gradient(one)
        self._client.done()
        if not self._has_named_unused:
            self._name_unused()

    def _name_unused(self) -> None:
        self._has_named_unused = True
        unused = [one.name for one in self._parameters if not one.is_used]
        if unused and self.rank == 0:
            print(f"muster: no gradient in the first slice, taken as zero: {', '.join(unused)}")

    def _refuse_step(self, args: Any, kwargs: Any) -> None:
        if args or kwargs.get("closure") is not None:
            raise UsageError("optimizer.step(closure): the weights are updated after the step's "
                             "slices, so the closure cannot be called")
        if self._work is not None:
            raise UsageError("optimizer.step() was called within a slice: call it once for each "
                             "step, after the inner loop")

    def _evaluate(self, work: Work, dataset: _data.Samples, function: Callable[..., Any]) -> Any:
        assert self._model is not None
        self._version = -1  # the weights may be an average
        self._bring_weights(work.step)
        self._version = -1
        data = _to_device(dataset[work.seed, work.samples], self.device)
        _job.seed_all(work.seed ^ 1)
        modes = _contents.Modes(self._model)
        self._model.eval()
        try:
            with torch.no_grad():
                return function(*data) if isinstance(data, (tuple, list)) else function(data)
        finally:
            modes.restore()

    def _has_lost_helper(self) -> bool:
        return self._loader is not None and self._loader.has_lost_worker()

    def _finish(self) -> None:
        for one in self._parameters:
            one.tensor.grad = None
            one.hook.remove()
        if self.has_last_weights and self._end_step is not None:
            self._bring_weights(self._end_step)


def _refuse_scaler() -> None:
    """Each process would have a scale of its own."""
    scaler: Any = getattr(torch.amp, "GradScaler", torch.cuda.amp.GradScaler)  # torch 2.3
    plain = scaler.step

    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.is_enabled():
            raise UsageError("GradScaler cannot be used in a job: use bfloat16, which needs no scaling")
        return plain(self, *args, **kwargs)

    scaler.step = step


def _plain(value: Any) -> Any:
    """Without NumPy's numbers, which torch.load refuses; schedulers may make them."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {_plain(key): _plain(one) for key, one in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_plain(one) for one in value)
    return value


def _pickle(value: Any) -> bytes:
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def _load(name: str, state: bytes) -> Any:
    try:
        return torch.load(io.BytesIO(state), weights_only=True)
    except Exception as error:  # whose text is about the safety of pickles
        raise UsageError(f"the state_dict of {name} could not be restored: expected tensors, numbers, "
                         f"strings, lists and dictionaries") from error


def _keep_freed_memory() -> None:
    """Gradients of many megabytes are allocated anew in every slice. Without this, each would be
    new pages of the kernel."""
    m_trim_threshold, m_mmap_max = -1, -4  # malloc.h
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:
        return  # another C library
    mallopt(m_trim_threshold, 2**31 - 1)
    mallopt(m_mmap_max, 0)


def _statistics(model: torch.nn.Module) -> Iterator[Tuple[str, torch.Tensor]]:
    """The running statistics of normalisations, which training changes."""
    kinds = (torch.nn.modules.batchnorm._NormBase,)
    for prefix, module in model.named_modules():
        if isinstance(module, kinds) and module.running_mean is not None:
            for name in ("running_mean", "running_var"):
                yield f"{prefix}.{name}" if prefix else name, getattr(module, name)


def _to_device(data: Any, device: torch.device) -> Any:
    if device.type == "cpu":
        return data
    if isinstance(data, torch.Tensor):
        return data.to(device, non_blocking=True)
    if isinstance(data, dict):
        return {key: _to_device(one, device) for key, one in data.items()}
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(_to_device(one, device) for one in data))
    if isinstance(data, (tuple, list)):
        return type(data)(_to_device(one, device) for one in data)
    return data
