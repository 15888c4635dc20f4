"""Guards a model where its weights must not be used. Between the loops over batches, a process that
joins later, or a resumed run, lacks those of that moment. After optimizer.step() in the body, they
are those before the step. A program that used them would go on with those of another step, so it is
an error in every process, at once."""

import contextlib
import os
import sys
from typing import Any, Iterator, Optional, Set, Tuple

import torch
from torch.nn.modules import module as modules

from muster._client import UsageError

_WHERE = "between epochs, or after optimizer.step()"
_WHY = ("a process that joins later, or a resumed run, does not have the weights of this moment, and within a step "
        "nobody has them. Between epochs, use job.once(function, ...), whose result all processes have, and "
        "job.save(state, path); averages need job.steps (docs/OWN_MODEL.md)")
_SET_GRADIENT = getattr(torch.Tensor, "grad").__set__
_REPLACED = ("__deepcopy__", "state_dict", "named_parameters")


class Guarded(torch.Tensor):
    """A parameter, or a value of a state_dict. While the guard is on, only what it is can be read, such as its
    shape, and it can be handed to job.save, which turns the guard off."""

    guard: "Guard"
    origin: torch.Tensor

    _allowed = {torch.Tensor.numel, torch.Tensor.nelement, torch.Tensor.size, torch.Tensor.dim,
                torch.Tensor.is_floating_point, torch.Tensor.element_size,
                *(getattr(torch.Tensor, name).__get__ for name in ("shape", "dtype", "device", "requires_grad", "grad",
                                                                  "ndim", "is_cuda", "is_leaf"))}

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is _SET_GRADIENT and args[1] is None:
            return None  # zero_grad()
        if function in cls._allowed:
            return function(args[0].origin, *args[1:], **(kwargs or {}))
        raise UsageError(f"the program used the model's weights ({_line()}) {_WHERE}: {_WHY}")

    def __reduce_ex__(self, protocol: Any) -> Any:
        if self.guard.is_on:
            raise UsageError(f"the program saved the model's weights {_WHERE}: {_WHY}")
        return self.origin.__reduce_ex__(protocol)  # type: ignore[no-untyped-call]


class Guard:
    """On or off. It leaves no trace in the model when it is off, so that a model can be pickled."""

    def __init__(self, model: torch.nn.Module, loop: Any) -> None:
        """``loop``: over epochs, or None."""
        self._model = model
        self._loop = loop
        # In the loop over steps, averages are updated in missed steps, too, where it has no effect.
        self._replaced = _REPLACED if loop is not None else _REPLACED[:2]
        self._known: Set[torch.nn.Module] = set()
        self._is_early = False  # before the batches of an epoch
        self._handle: Optional[Any] = None

    @property
    def is_on(self) -> bool:
        return self._handle is not None

    @contextlib.contextmanager
    def off(self) -> Iterator[None]:
        was = self.is_on
        self.set(False)
        try:
            yield
        finally:
            self.set(was)

    def set(self, is_on: bool, is_early: bool = False) -> None:
        self._is_early = is_early
        if is_on == self.is_on:
            return
        model = self._model
        if self._handle is not None:
            self._handle.remove()
            self._handle = None
            for name in self._replaced:
                del model.__dict__[name]
            return
        self._known = self._known or set(model.modules())
        self._handle = modules.register_module_forward_pre_hook(self._refuse_call)
        for name, one in zip(self._replaced, (self._refuse_copy, self._state_dict, self._named_parameters)):
            model.__dict__[name] = one

    def _refuse_call(self, module: torch.nn.Module, inputs: Any) -> None:
        if module not in self._known:
            return
        if self._loop is not None:
            self._loop.refuse_left()  # a better reason
        if self._is_early:
            raise UsageError(f"the program called the model ({_line()}) before it began its loop over the batches of "
                             f"this epoch, which is one over the loader that prepare returned. Elsewhere, {_WHY}")
        raise UsageError(f"the program called the model ({_line()}) {_WHERE}: {_WHY}")

    def _refuse_copy(self, memory: Any) -> Any:
        raise UsageError(f"the program copied the model ({_line()}) {_WHERE}: {_WHY}")

    def _state_dict(self, *args: Any, **kwargs: Any) -> Any:
        found = type(self._model).state_dict(self._model, *args, **kwargs)
        for name, one in found.items():
            if isinstance(one, torch.Tensor) and not isinstance(one, Guarded):
                found[name] = self._guarded(one)
        return found

    def _named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[Tuple[str, torch.Tensor]]:
        for name, one in type(self._model).named_parameters(self._model, *args, **kwargs):
            yield name, self._guarded(one)

    def _guarded(self, tensor: torch.Tensor) -> torch.Tensor:
        one = tensor.detach().as_subclass(Guarded)
        one.guard, one.origin = self, tensor
        return one


def _line() -> str:
    """Where the program did it, below torch and muster."""
    here, libraries = os.path.dirname(__file__), os.path.dirname(torch.__file__)
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith((here + os.sep, libraries + os.sep)):
        frame = frame.f_back
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}" if frame is not None else "somewhere"
