"""The model's parameters and running statistics in the memory of a job, and the gradient of the slice
that the program computes."""

import contextlib
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import numpy as np
import torch

from muster import _contents
from muster._client import UsageError, Work
from muster._copies import Device, Memory, Queue
from muster._loss_kind import why_no_mean
from muster._optimizer import Plan
from muster._repeat import Repeat


_ABOUT = [getattr(torch.Tensor, name).__get__ for name in ("device", "dtype", "is_sparse")]


class _Taken(torch.Tensor):
    """The gradient of a parameter after Muster has taken it."""

    _allowed = {torch.Tensor.zero_, torch.Tensor.detach_, torch.Tensor.requires_grad_,
                torch._foreach_zero_, getattr(torch.Tensor, "grad_fn").__get__}

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function in cls._allowed:
            return args[0]
        if function in _ABOUT:
            with torch._C.DisableTorchFunctionSubclass():
                return function(*args)
        raise UsageError(
            "the program used a parameter's grad: it has gone to the server, which adds and applies "
            "the gradients of all slices. For clip_grad_norm_, use Job(clip_norm=...), which is "
            "optimizer.clip_norm in the config; instead of GradScaler, use bfloat16, which needs no "
            "scaling, or for GPUs without it Job(precision=\"fp16\"), whose scale is the server's; to read "
            "gradients, prepare(..., update=\"program\") and job.steps")


class Parameter:
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


class Gradients:
    """Owned by the job. ``call``: how the program calls backward."""

    def __init__(self, job: Any, model: torch.nn.Module, plan: Optional[Plan], repeats: bool, call: str) -> None:
        self._job = job
        self._client = job._client
        self._model = model
        self._call = call
        self._learning_rate = plan.learning_rate if plan is not None else None
        self._repeat = Repeat(self._client, repeats)
        self.is_in_backward = False
        self._queue = Queue()  # what to tell the helper
        self._devices: Dict[torch.device, Device] = {}
        self._has_named_unused = False
        self.version = -1  # of the weights in the model
        self.is_complete = self.is_check = False  # of the current slice
        self.parameters: List[Parameter] = []
        self._add(plan)

    def _add(self, plan: Optional[Plan]) -> None:
        add = self._client.add_variable
        # Gradients are sent from the last variable to the first. Statistics are complete last.
        self._statistics = [(buffer, add(name, tuple(buffer.shape), averaged=True))
                            for name, buffer in sorted(_statistics(self._model), key=_device_of)]
        for name, tensor in self._model.named_parameters():
            if not tensor.requires_grad:
                continue
            if tensor.dtype != torch.float32:
                raise UsageError(f"parameter {name} is {tensor.dtype}: expected float32; for mixed "
                                 f"precision, keep it so and use torch.autocast")
            if tensor.is_meta or isinstance(tensor, torch.nn.UninitializedParameter):
                raise UsageError(f"parameter {name} has no values yet: expected a complete model")
            options: Dict[str, Any] = plan.options[tensor] if plan is not None else {}
            number = add(name, tuple(tensor.shape), **options)
            self.parameters.append(Parameter(name, tensor, number))
        for one in self.parameters:
            one.weights = _tensor(self._client.weights(one.number), one.tensor)
            one.gradient = _tensor(self._client.gradient(one.number), one.tensor)
            one.weights.copy_(one.tensor.detach())
            if one.tensor.device.type == "cpu":
                one.tensor.data = one.weights
            one.hook = one.tensor.register_post_accumulate_grad_hook(  # type: ignore
                self._hook(one))
        self._values = {number: _tensor(self._client.weights(number), buffer)
                        for buffer, number in self._statistics}
        self._changes = {number: _tensor(self._client.gradient(number), buffer)
                         for buffer, number in self._statistics}
        self._add_devices()

    def _add_devices(self) -> None:
        memory = Memory(self._client, len(self.parameters) + len(self._statistics))
        on_device: Dict[torch.device, Tuple[List[Any], List[Any]]] = {}
        for one in self.parameters:
            on_device.setdefault(one.tensor.device, ([], []))[0].append((one.tensor, one.weights))
        for buffer, number in self._statistics:
            on_device.setdefault(buffer.device, ([], []))[1].append((buffer, self._values[number]))
        on_device.pop(torch.device("cpu"), None)
        for device, (parameters, statistics) in on_device.items():
            self._devices[device] = Device(device, memory, parameters, statistics)
        self._on_host = [one for one in self._statistics if one[0].device.type == "cpu"]

    def take_values(self) -> None:
        """Before the job is joined: weights may have been loaded since they were added."""
        known = {id(one.tensor) for one in self.parameters}
        for name, tensor in self._model.named_parameters():
            if tensor.requires_grad and id(tensor) not in known:
                raise UsageError(f"parameter {name} was added or replaced after prepare")
        for one in self.parameters:
            if one.tensor.device.type != "cpu":
                one.weights.copy_(one.tensor.detach())
            one.version = one.tensor._version
        for buffer, number in self._statistics:
            self._values[number].copy_(buffer)
        counters = (module._buffers.get("num_batches_tracked") for module in self._model.modules())
        self._counters = [one for one in counters if one is not None]
        averaged = [buffer for buffer, _ in self._statistics]
        self._constants = _contents.Constants(self._model, averaged + self._counters)
        self._client.set_fingerprint(self._constants.fingerprint)
        self.remember_modes()

    def remember_modes(self) -> None:
        """Slices begin with these."""
        self._modes = _contents.Modes(self._model)

    def bring(self, step: int) -> None:
        """Gives the model the weights of this step, and its statistics, which slices change.
        Parameters on the CPU are in the memory."""
        if self.version != step:
            self.version = step
            for device in self._devices.values():
                device.bring()
            for one in self.parameters:
                if one.tensor.device.type != "cpu":
                    one.version = one.tensor._version
        self.bring_statistics()
        if self._counters:
            torch._foreach_zero_(self._counters)
            torch._foreach_add_(self._counters, step)

    def bring_statistics(self) -> None:
        for buffer, number in self._on_host:
            buffer.copy_(self._values[number])
        for device in self._devices.values():
            device.bring_statistics()

    def settle(self) -> None:
        """Before this process waits, because the helper may then write weights to the memory."""
        for device in self._devices.values():
            device.settle()

    # ----------------------------------------------------------------------------------- a slice

    def repeated(self, pending: Optional[Work], must: bool) -> Optional[Work]:
        """The slice to compute once more, to compare, before this work."""
        work = self._repeat.due(pending, must)
        self.is_check = work is not None
        return work

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """For gradients that are the program's own, between epochs."""
        self._clear()
        try:
            yield
        finally:
            self._clear()

    def _clear(self) -> None:
        for one in self.parameters:
            one.tensor.grad = None

    def is_again(self, work: Work) -> bool:
        """Whether this process has computed the slice before, to compare it."""
        return not self.is_check and self._repeat.is_second(work)

    def begin(self) -> None:
        self.is_complete = False
        self._queue.clear()
        self._loss: Any = 0.0  # sum over the samples, or over the weights; of a GPU
        self._weight: Optional[float] = None
        self._means: Dict[str, Any] = {}
        self._is_reported = False
        self._lacks_gradient = True  # or a part of it
        for one in self.parameters:
            tensor = one.tensor
            tensor.grad = None
            one.is_seen = one.is_pushed = False
            on_cpu = tensor.device.type == "cpu"
            if not tensor.requires_grad or tensor._version != one.version or \
                    (on_cpu and tensor.data_ptr() != one.weights.data_ptr()):
                _refuse_change(one)
        self._modes.check()

    def backward(self, loss: torch.Tensor, weight: Any, reduction: Optional[str], last: bool,
                 means: Dict[str, Any], retain_graph: Any = None) -> None:
        work = self._job._work
        if work is None or self.is_complete:
            raise UsageError("backward: expected a call within the inner loop, before optimizer.step()")
        if loss.numel() != 1:
            raise UsageError(f"backward: expected the mean loss of the slice, one number, got shape "
                             f"{tuple(loss.shape)}")
        for name in ("retain_graph", "create_graph", "inputs", "gradient"):
            if name in means:
                raise UsageError(f"backward({name}): expected a loss, and values to report")
        self._lacks_gradient = True
        if loss.device in self._devices:
            self._devices[loss.device].check_stream()
        if self._is_reported:
            raise UsageError(f"backward was called again in a slice, after its last call: expected "
                             f"{self._call}(loss, last=False) in all calls but the last, or in all of them")
        if weight is None and reduction is None:
            waits = self.is_check or loss.device.type == "cpu"
            if (why := why_no_mean(loss, len(work.samples), work.batch, waits)) is not None:
                raise UsageError(f"backward: the loss {why.replace('job.backward', self._call)}")
        share, size = self._share(work, weight, reduction or "mean")
        self._loss += _number(loss) * size if size else 0.0
        for name, value in means.items():
            self._means[name] = self._means.get(name, 0.0) + _number(value)
        if last:
            self._report(work)
        self.is_in_backward = True
        try:
            if share:
                (loss.float() * (share * work.loss_scale)).backward(retain_graph=retain_graph)
        finally:
            self.is_in_backward = False
        self._lacks_gradient = False

    def _share(self, work: Work, weight: Any, reduction: str) -> Tuple[float, float]:
        """The factors of the gradient and of the reported loss."""
        if weight is not None:
            self._weight = float(weight)
        if reduction not in ("mean", "sum") or reduction == "sum" and self._weight is not None:
            raise UsageError(f"backward(reduction={reduction!r}, weight={weight!r}): expected \"mean\", or "
                             f"\"sum\" without a weight")
        if self._weight is not None:
            return self._weight, self._weight
        count = len(work.samples)
        return (1.0, 1.0) if reduction == "sum" else (count / work.batch, count)

    def _report(self, work: Work) -> None:
        """It goes before the gradients, and waits for the GPU as they do."""
        self._is_reported = True
        values = [self._loss, *self._means.values()]
        late = [one for one in values if isinstance(one, torch.Tensor)]
        if late:
            values = [one.to(late[0].device) if isinstance(one, torch.Tensor) else
                      torch.full((), one, dtype=torch.float64, device=late[0].device) for one in values]
            numbers, arrived = self._devices[late[0].device].numbers(values)
        else:
            numbers, arrived = torch.tensor(values, dtype=torch.float64), None
        rate = self._learning_rate() if self._learning_rate is not None else None
        self._queue.add(arrived, lambda: self._tell(work, numbers.tolist(), rate))

    def _tell(self, work: Work, numbers: List[float], rate: Optional[float]) -> None:
        self._loss = numbers[0]
        if self.is_check:
            return
        self._job._add_scalars(dict(zip(self._means, numbers[1:])), len(work.samples))
        if rate is not None:
            self._client.set_learning_rate(rate)
        if self._weight is not None:
            self._client.set_weight(self._weight)
        self._client.report(self._loss)

    def _hook(self, one: Parameter) -> Callable[[torch.Tensor], None]:
        def take(parameter: torch.Tensor) -> None:
            if self._job._is_computing:
                return  # the program's own
            if not self.is_in_backward:
                raise UsageError(f"backward was called on a model of a job: call {self._call}(loss) instead")
            if one.is_pushed:
                raise UsageError(f"parameter {one.name} got two gradients in one backward: use "
                                 f"checkpoint(…, use_reentrant=False)")
            one.is_seen = True
            if not self._is_reported:  # another call may follow
                return
            arrived = self._take(one)
            # While it is compared, the helper must not round it for the wire.
            stays = self.is_check or self._repeat.is_second(self._job._work)
            self._queue.add(arrived, _nothing if stays else lambda: self._client.push(one.number))

        return take

    def _take(self, one: Parameter) -> Any:
        """The event after which the gradient is in the memory, or None."""
        gradient = one.tensor.grad
        assert gradient is not None
        gradient = gradient.to_dense() if gradient.is_sparse else gradient
        arrived = None
        if gradient.device.type == "cpu":
            one.gradient.copy_(gradient)
        else:
            arrived = self._devices[gradient.device].take(gradient, one.gradient)
        one.tensor.grad = one.taken
        one.is_pushed = one.is_used = True
        return arrived

    def complete(self, work: Work) -> None:
        """The program has computed the gradient of the slice."""
        if self.is_complete:
            raise UsageError("optimizer.step() was called twice for a slice")
        if self._lacks_gradient:
            raise UsageError(f"a slice has no gradient: call {self._call} for each one, and let its errors "
                             f"end the program")
        self._constants.check(work.step)
        self._modes.restore()
        if not self._is_reported:
            self._report(work)
        share = len(work.samples) / work.batch * work.loss_scale
        for buffer, number in self._on_host:
            self._changes[number].copy_(buffer * share)
        for device in self._devices.values():
            self._queue.add(device.take_statistics(share), _nothing)
        for one in self.parameters:
            gradient = one.tensor.grad
            if (one.is_pushed and gradient is not one.taken) or (one.is_seen and gradient is None):
                raise UsageError(f"the program has changed or cleared the gradient of {one.name} "
                                 f"within a slice: call optimizer.step() and zero_grad() after the "
                                 f"inner loop")
            if gradient is None:
                one.gradient.zero_()
            elif not one.is_pushed:
                self._queue.add(self._take(one), _nothing)
        self._queue.finish()
        self.is_complete = True
        compare = self._repeat.first if self.is_check else self._repeat.second
        compare(work, self._loss, ((one.name, one.gradient.numpy()) for one in self.parameters))

    def end(self, work: Work) -> None:
        if not self.is_complete:
            self.complete(work)
        if self.is_check:
            self.is_check = False
            return
        self._client.done()
        if not self._has_named_unused:
            self._name_unused()

    def _name_unused(self) -> None:
        self._has_named_unused = True
        unused = [one.name for one in self.parameters if not one.is_used]
        if unused and self._job.rank == 0:
            print(f"muster: no gradient in the first slice, taken as zero: {', '.join(unused)}")

    def free(self) -> None:
        for one in self.parameters:
            one.tensor.grad = None
            one.hook.remove()


def _tensor(array: np.ndarray, like: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(array).view(like.shape)


def _number(value: Any) -> Any:
    """A float, or a tensor on its GPU, which nobody waits for here."""
    if isinstance(value, torch.Tensor) and value.device.type != "cpu":
        return value.detach().reshape(()).double()
    return float(value.detach() if isinstance(value, torch.Tensor) else value)


def _nothing() -> None:
    """A copy whose arrival tells nobody anything."""


def _refuse_change(one: Parameter) -> None:
    raise UsageError(f"the program has changed parameter {one.name}, its memory or its "
                     f"requires_grad: the server has the weights; do so before prepare, or load "
                     f"values before steps. With update=\"program\", change weights in the body "
                     f"if job.is_updater")


def _device_of(named: Tuple[str, torch.Tensor]) -> str:
    """Those of one device lie together."""
    return str(named[1].device)


def _statistics(model: torch.nn.Module) -> Iterator[Tuple[str, torch.Tensor]]:
    """The running statistics of normalisations, which training changes."""
    kinds = (torch.nn.modules.batchnorm._NormBase,)
    for prefix, module in model.named_modules():
        if isinstance(module, kinds) and module.running_mean is not None:
            for name in ("running_mean", "running_var"):
                yield f"{prefix}.{name}" if prefix else name, getattr(module, name)
