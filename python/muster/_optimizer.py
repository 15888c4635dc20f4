"""Describes a torch optimizer so that the server can apply it."""

from typing import Any, Dict, Optional

import torch

from muster._client import UsageError

_RATIO_TOLERANCE = 1e-6


class Unsupported(UsageError):
    """The server does not have this optimizer."""


class Plan:
    """How the server applies an optimizer, and the learning rate of each step."""

    def __init__(self, model: torch.nn.Module, optimizer: Any, clip_norm: Optional[float] = None) -> None:
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise UsageError(f"prepare got {type(optimizer).__name__} as optimizer: expected one "
                             f"torch.optim.Optimizer, for all trained parameters; several are "
                             f"possible with update=\"program\"")
        self.optimizer: torch.optim.Optimizer = optimizer
        groups = optimizer.param_groups
        texts = {_text(optimizer, group) for group in groups}
        if len(texts) > 1:
            raise UsageError(f"the optimizer's parameter groups differ in more than learning rate "
                             f"and weight decay: {' and '.join(sorted(texts))}")
        self.text = texts.pop()  # an Optimizer of Muster's config
        if clip_norm is not None:
            self.text += f" clip_norm: {float(clip_norm)!r}"
        self._settings = [_settings(optimizer, group) for group in groups]
        rates = [float(group.get("initial_lr", group["lr"])) for group in groups]
        self._base = max(range(len(groups)), key=lambda i: rates[i])
        highest = rates[self._base]
        self._factors = [rate / highest if highest > 0 else 1.0 for rate in rates]
        trained = set(model.parameters())
        self.options: Dict[torch.Tensor, Dict[str, float]] = {}  # of each parameter
        for group, factor in zip(groups, self._factors):
            for parameter in group["params"]:
                if parameter not in trained:
                    raise UsageError("the optimizer has a parameter that is not the model's")
                self.options[parameter] = {"learning_rate_multiplier": factor,
                                           "weight_decay": float(group["weight_decay"])}
        for name, parameter in model.named_parameters():
            if parameter.requires_grad and parameter not in self.options:
                raise UsageError(f"parameter {name} is not in the optimizer: add it, or set its "
                                 f"requires_grad to False before prepare")
        self.learning_rate()  # checks

    def learning_rate(self) -> float:
        """The rate of the highest group now. Raises UsageError if the program has changed what
        only the server could apply."""
        groups = self.optimizer.param_groups
        now = [_settings(self.optimizer, group) for group in groups]
        if now != self._settings:
            changed = [f"{was} to {is_now}" for was, is_now in zip(self._settings, now)
                       if was != is_now] or ["the number of groups"]
            raise UsageError(f"the optimizer's parameter groups have changed since prepare "
                             f"({changed[0]}): only learning rates may change; schedulers with "
                             f"cycle_momentum need cycle_momentum=False")
        if self.optimizer.state:
            raise UsageError("the optimizer has state, but the server keeps the state: give prepare "
                             "a new optimizer; `muster launch --resume` restores the server's")
        rate = float(groups[self._base]["lr"])
        for group, factor in zip(groups, self._factors):
            if abs(float(group["lr"]) - factor * rate) > _RATIO_TOLERANCE * rate:
                raise UsageError(f"the learning rates of the parameter groups are "
                                 f"{[float(one['lr']) for one in groups]}: expected the ratio that "
                                 f"they had in prepare, {self._factors}")
        return rate


def _settings(optimizer: torch.optim.Optimizer, group: Dict[str, Any]) -> str:
    return (f"{_text(optimizer, group)}, weight decay {group['weight_decay']}, "
            f"{len(group['params'])} parameters")


def _text(optimizer: torch.optim.Optimizer, group: Dict[str, Any]) -> str:
    kind = type(optimizer)
    for name in ("maximize", "amsgrad", "centered", "differentiable"):
        if group.get(name):
            raise Unsupported(f"{kind.__name__}({name}=True): the server does not have it; use prepare(..., "
                              f"update=\"program\")")
    if kind is torch.optim.SGD:
        if group["dampening"] != 0:
            raise Unsupported("SGD(dampening): the server does not have it; use prepare(..., "
                             "update=\"program\")")
        if group["momentum"] == 0:
            return "type: SGD decay_type: COUPLED"
        name = "NESTEROV" if group["nesterov"] else "MOMENTUM"
        return f"type: {name} momentum: {float(group['momentum'])!r} decay_type: COUPLED"
    if kind in (torch.optim.Adam, torch.optim.AdamW):
        is_decoupled = kind is torch.optim.AdamW or group.get("decoupled_weight_decay", False)
        beta1, beta2 = (float(beta) for beta in group["betas"])
        name, decay = ("ADAMW", "DECOUPLED") if is_decoupled else ("ADAM", "COUPLED")
        return (f"type: {name} beta1: {beta1!r} beta2: {beta2!r} epsilon: {float(group['eps'])!r} "
                f"decay_type: {decay}")
    if kind is torch.optim.RMSprop:
        return (f"type: RMSPROP rho: {float(group['alpha'])!r} epsilon: {float(group['eps'])!r} momentum: "
                f"{float(group['momentum'])!r} decay_type: COUPLED")
    raise Unsupported(f"the server does not have the optimizer {kind.__module__}.{kind.__name__}: "
                     f"expected torch.optim.SGD, Adam, AdamW or RMSprop, or prepare(..., "
                     f"update=\"program\")")
