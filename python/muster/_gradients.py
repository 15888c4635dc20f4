"""The model's parameters and running statistics in the memory of a job, and the gradient of the slice
that the program computes."""

import contextlib
import threading
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import numpy as np
import torch

from muster import _contents
from muster._client import UsageError, Work
from muster._loss_kind import why_no_mean
from muster._optimizer import Plan
from muster._repeat import Repeat


class _Taken(torch.Tensor):
    """The gradient of a parameter after Muster has taken it."""

    _allowed = {torch.Tensor.zero_, torch.Tensor.detach_, torch.Tensor.requires_grad_}

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function in cls._allowed:
            return args[0]
        raise UsageError(
            "the program used a parameter's grad: it has gone to the server, which adds and applies "
            "the gradients of all slices. For clip_grad_norm_, use Job(clip_norm=...), which is "
            "optimizer.clip_norm in the config; instead of GradScaler, use bfloat16, which needs no "
            "scaling; to read gradients, prepare(..., update=\"program\") and job.steps")


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
        self._pushing = threading.Lock()  # backward has a thread for each device
        self._has_named_unused = False
        self.version = -1  # of the weights in the model
        self.is_complete = self.is_check = False  # of the current slice
        self.parameters: List[Parameter] = []
        self._add(plan)

    def _add(self, plan: Optional[Plan]) -> None:
        add = self._client.add_variable
        # Gradients are sent from the last variable to the first. Statistics are complete last.
        self._statistics = [(buffer, add(name, tuple(buffer.shape), averaged=True))
                            for name, buffer in _statistics(self._model)]
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
        self._counters = [module._buffers["num_batches_tracked"] for module in self._model.modules()
                          if module._buffers.get("num_batches_tracked") is not None]
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
        self.bring_statistics()
        for counter in self._counters:
            counter.fill_(step)
        if self.version == step:
            return
        self.version = step
        for one in self.parameters:
            if one.tensor.device.type != "cpu":
                with torch.no_grad():
                    one.tensor.copy_(one.weights)
                one.version = one.tensor._version

    def bring_statistics(self) -> None:
        for buffer, number in self._statistics:
            buffer.copy_(self._values[number])

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
        self._loss = 0.0  # sum over the samples, or over the weights
        self._weight: Optional[float] = None
        self._means: Dict[str, float] = {}
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
                 means: Dict[str, Any]) -> None:
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
        if self._is_reported:
            raise UsageError(f"backward was called again in a slice, after its last call: expected "
                             f"{self._call}(loss, last=False) in all calls but the last, or in all of them")
        if weight is None and reduction is None:
            if (why := why_no_mean(loss, len(work.samples), work.batch)) is not None:
                raise UsageError(f"backward: the loss {why.replace('job.backward', self._call)}")
        share, size = self._share(work, weight, reduction or "mean")
        self._loss += float(loss.detach()) * size if size else 0.0
        for name, value in means.items():
            self._means[name] = self._means.get(name, 0.0) + float(value)
        if last:
            self._report(work)
        self.is_in_backward = True
        try:
            if share:
                (loss.float() * share).backward()  # type: ignore[no-untyped-call]
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
        self._is_reported = True
        if self.is_check:
            return
        self._job._add_scalars(self._means, len(work.samples))
        if self._learning_rate is not None:
            self._client.set_learning_rate(self._learning_rate())
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
            _copy_gradient(one)
            if not self.is_check:
                with self._pushing:
                    self._client.push(one.number)

        return take

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
        share = len(work.samples) / work.batch
        for buffer, number in self._statistics:
            self._changes[number].copy_(buffer * share)
        for one in self.parameters:
            gradient = one.tensor.grad
            if (one.is_pushed and gradient is not one.taken) or (one.is_seen and gradient is None):
                raise UsageError(f"the program has changed or cleared the gradient of {one.name} "
                                 f"within a slice: call optimizer.step() and zero_grad() after the "
                                 f"inner loop")
            if gradient is None:
                one.gradient.zero_()
            elif not one.is_pushed:
                _copy_gradient(one)
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


def _copy_gradient(one: Parameter) -> None:
    gradient = one.tensor.grad
    assert gradient is not None
    one.gradient.copy_(gradient.to_dense() if gradient.is_sparse else gradient)
    one.tensor.grad = one.taken
    one.is_pushed = one.is_used = True


def _refuse_change(one: Parameter) -> None:
    raise UsageError(f"the program has changed parameter {one.name}, its memory or its "
                     f"requires_grad: the server has the weights; do so before prepare, or load "
                     f"values before steps. With update=\"program\", change weights in the body "
                     f"if job.is_updater")


def _statistics(model: torch.nn.Module) -> Iterator[Tuple[str, torch.Tensor]]:
    """The running statistics of normalisations, which training changes."""
    kinds = (torch.nn.modules.batchnorm._NormBase,)
    for prefix, module in model.named_modules():
        if isinstance(module, kinds) and module.running_mean is not None:
            for name in ("running_mean", "running_var"):
                yield f"{prefix}.{name}" if prefix else name, getattr(module, name)
