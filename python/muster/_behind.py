"""Guards a model while this process lacks the weights of the moment (Epoch.is_missed): what the
program computed from it would be another step's, and nobody would notice."""

from typing import Any, Callable, Optional

import torch
from torch.nn.modules import module as modules

from muster._client import UsageError

_WHY = ("this process does not have the weights of this moment, because it joined later, or the run was "
        "resumed later, and the program goes through what it missed. Use job.once(function, ...), whose "
        "result all processes have, and job.save(state, path); or skip it if is_missed")


class Lacking(torch.Tensor):
    """A value of a state_dict that this process does not have."""

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise UsageError(f"the program used a value of the model's state_dict: {_WHY}")


class Guard:
    """On or off. It leaves no trace in the model when it is off, so that a model can be pickled."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._model = model
        self._handle: Optional[Any] = None

    def set(self, is_behind: bool) -> None:
        if is_behind == (self._handle is not None):
            return
        if not is_behind:
            assert self._handle is not None
            self._handle.remove()
            self._handle = None
            for name in ("state_dict", "__deepcopy__"):
                del self._model.__dict__[name]
            return
        model = self._model
        known = set(model.modules())

        def refuse(module: torch.nn.Module, inputs: Any) -> None:
            if module in known:
                raise UsageError(f"the program called the model: {_WHY}")

        self._handle = modules.register_module_forward_pre_hook(refuse)
        model.__dict__["state_dict"] = _lacking(model, model.state_dict)
        model.__dict__["__deepcopy__"] = _refuse_copy


def _lacking(model: torch.nn.Module, plain: Callable[..., Any]) -> Callable[..., Any]:
    def state_dict(*args: Any, **kwargs: Any) -> Any:
        found = plain(*args, **kwargs)
        for name, one in found.items():
            if isinstance(one, torch.Tensor):
                found[name] = torch.empty(0).as_subclass(Lacking)
        return found

    return state_dict


def _refuse_copy(memory: Any) -> Any:
    raise UsageError(f"the program copied the model: {_WHY}")
