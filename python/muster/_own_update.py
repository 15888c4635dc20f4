"""prepare(update="program"): the program's own optimizers update the weights, in one more process."""

import io
from typing import Any, Dict, List

import numpy as np
import torch

from muster._client import Client, UsageError


class OwnUpdate:
    """The optimizers of a program, and what checkpoints keep for them."""

    def __init__(self, job: Any, optimizers: Any) -> None:
        given = optimizers if isinstance(optimizers, (list, tuple)) else [optimizers]
        for one in given:
            if not isinstance(one, torch.optim.Optimizer):
                raise UsageError(f"prepare(update=\"program\") got {type(one).__name__}: expected "
                                 f"one torch.optim.Optimizer or several")
        if not given:
            raise UsageError("prepare(update=\"program\") got no optimizer: expected one or several")
        _refuse_scaler()
        self._job = job
        self._client: Client = job._client
        self.optimizers: List[torch.optim.Optimizer] = list(given)
        self.kept: Dict[str, Any] = {}
        self._is_restored = self._is_checked = False
        self._client.set_optimizer("type: PROGRAM", self._shown_rate())

    def _shown_rate(self) -> float:
        rates = (group.get("lr") for group in self.optimizers[0].param_groups)
        return max((float(rate) for rate in rates if rate is not None), default=0.0)

    def give_gradients(self) -> None:
        """After the slices: the body of the loop expects gradients in every process."""
        for one in self._job._gradients.parameters:
            on_cpu = one.tensor.device.type == "cpu"
            if on_cpu and not self._job.is_updater:
                one.tensor.grad = one.gradient
                continue
            if self._job.is_updater and one.before is None:
                one.before = one.weights.clone()
            if one.spare is None:
                one.spare = torch.zeros_like(one.tensor)
            one.tensor.grad = one.spare

    def _check_parameters(self) -> None:
        model = self._job._model
        known = {id(one.tensor) for one in self._job._gradients.parameters}
        for name, tensor in model.named_parameters():
            if tensor.requires_grad and id(tensor) not in known:
                raise UsageError(f"parameter {name} was added, replaced or unfrozen after prepare")
        frozen = {id(tensor) for tensor in model.parameters()}
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                if any(id(tensor) not in frozen for tensor in group["params"]):
                    raise UsageError("an optimizer has a parameter that is not the model's: give prepare "
                                     "one module that holds all of them")

    def missed_steps_end(self) -> None:
        """What the body did to the weights in missed steps is in them already."""
        if not self._job.is_updater:
            return
        for one in self._job._gradients.parameters:
            if one.before is not None:
                one.weights.copy_(one.before)
                one.before = None
        if not self._is_restored:
            self._is_restored = True
            self._restore(self._client.state())

    def begin(self) -> None:
        self._check_parameters()
        for one in self._job._gradients.parameters:
            # Optimizers may keep it.
            one.tensor.grad = one.gradient.to(one.tensor.device, copy=True)

    def end(self) -> None:
        for one in self._job._gradients.parameters:
            one.tensor.grad = None
            if one.tensor.data_ptr() != one.weights.data_ptr():
                one.weights.copy_(one.tensor.detach())
                if one.tensor.device.type == "cpu":
                    one.tensor.data = one.weights
            one.version = one.tensor._version
        self._client.set_learning_rate(max(0.0, self._shown_rate()))
        self._client.done()

    def keep(self, objects: Dict[str, Any]) -> None:
        for name, one in objects.items():
            if not (hasattr(one, "state_dict") and hasattr(one, "load_state_dict")):
                raise UsageError(f"keep({name}=…): {type(one).__name__} has no state_dict and "
                                 f"load_state_dict")
        self.kept.update(objects)

    def save(self) -> None:
        kept = {name: _plain(one.state_dict()) for name, one in self.kept.items()}
        optimizers = [_plain(one.state_dict()) for one in self.optimizers]
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
        if len(values["optimizers"]) != len(self.optimizers) or set(values["kept"]) != set(self.kept):
            raise UsageError(f"the checkpoint has {len(values['optimizers'])} optimizers and keeps "
                             f"{sorted(values['kept'])}; this program has {len(self.optimizers)} and "
                             f"{sorted(self.kept)}")
        for optimizer, one in zip(self.optimizers, values["optimizers"]):
            optimizer.load_state_dict(one)
        for name, one in values["kept"].items():
            self.kept[name].load_state_dict(one)


def _refuse_scaler() -> None:
    """Each process would have a scale of its own."""
    scaler: Any = getattr(torch.amp, "GradScaler", torch.cuda.amp.GradScaler)  # torch 2.3
    plain = scaler.step

    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.is_enabled():
            raise UsageError("GradScaler cannot be used in a job: use bfloat16, which needs no scaling, or for "
                             "GPUs without it Job(precision=\"fp16\"), whose scale is the server's")
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
