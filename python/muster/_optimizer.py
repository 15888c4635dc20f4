"""Describes a torch optimizer so that the server can apply it."""

from typing import Any, Callable, Dict, List, NamedTuple

import torch

from muster._client import UsageError

_RATIO_TOLERANCE = 1e-6


class Plan(NamedTuple):
    text: str  # an Optimizer of Muster's config
    options: Dict[torch.Tensor, Dict[str, float]]  # of each parameter
    learning_rate: Callable[[], float]  # of the first group, now


def describe(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Plan:
    groups = optimizer.param_groups
    texts = {_text(optimizer, group) for group in groups}
    if len(texts) > 1:
        raise UsageError(f"the optimizer's parameter groups differ in more than learning rate and "
                         f"weight decay: {' and '.join(sorted(texts))}")
    rates = [float(group.get("initial_lr", group["lr"])) for group in groups]
    base = max(range(len(groups)), key=lambda i: rates[i])
    factors = [rate / rates[base] if rates[base] > 0 else 1.0 for rate in rates]

    def learning_rate() -> float:
        now = float(groups[base]["lr"])
        for group, factor in zip(groups, factors):
            if abs(float(group["lr"]) - factor * now) > _RATIO_TOLERANCE * now:
                raise UsageError(f"the learning rates of the parameter groups are "
                                 f"{[float(one['lr']) for one in groups]}: expected the ratio that "
                                 f"they had in prepare, {factors}")
        return now

    trained = {parameter for parameter in model.parameters()}
    options: Dict[torch.Tensor, Dict[str, float]] = {
        parameter: {"learning_rate_multiplier": 0} for parameter in trained}
    for group, factor in zip(groups, factors):
        for parameter in group["params"]:
            if parameter not in trained:
                raise UsageError("the optimizer has a parameter that is not the model's")
            options[parameter] = {"learning_rate_multiplier": factor,
                                  "weight_decay": float(group["weight_decay"])}
    return Plan(texts.pop(), options, learning_rate)


def _text(optimizer: torch.optim.Optimizer, group: Dict[str, Any]) -> str:
    kind = type(optimizer)
    for name in ("maximize", "amsgrad", "centered", "differentiable"):
        if group.get(name):
            raise UsageError(f"{kind.__name__}({name}=True): the server does not have it")
    if kind is torch.optim.SGD:
        if group["dampening"] != 0:
            raise UsageError("SGD(dampening): the server does not have it")
        if group["momentum"] == 0:
            return "type: SGD decay_type: COUPLED"
        name = "NESTEROV" if group["nesterov"] else "MOMENTUM"
        return f"type: {name} momentum: {group['momentum']!r} decay_type: COUPLED"
    if kind in (torch.optim.Adam, torch.optim.AdamW):
        is_decoupled = kind is torch.optim.AdamW or group.get("decoupled_weight_decay", False)
        beta1, beta2 = (float(beta) for beta in group["betas"])
        name, decay = ("ADAMW", "DECOUPLED") if is_decoupled else ("ADAM", "COUPLED")
        return (f"type: {name} beta1: {beta1!r} beta2: {beta2!r} epsilon: {group['eps']!r} "
                f"decay_type: {decay}")
    if kind is torch.optim.RMSprop:
        return (f"type: RMSPROP rho: {group['alpha']!r} epsilon: {group['eps']!r} momentum: "
                f"{group['momentum']!r} decay_type: COUPLED")
    raise UsageError(f"the server does not have the optimizer {kind.__module__}.{kind.__name__}: "
                     f"expected torch.optim.SGD, Adam, AdamW or RMSprop")
