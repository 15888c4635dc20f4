"""Adds the gradients of slices and updates the weights, when a process trains alone, with the bits
of the server: its order of additions and its formulas (ps/update/update_kernels.inc), in which
each operation is rounded to float32 as NumPy rounds it."""

import dataclasses
import math
import re
from typing import Dict, List, Optional, Tuple

import numpy as np

from muster._client import Error, UsageError

_PIECE = 32768  # floats: those of one piece of all arrays fit in the cache
_LINE = 16  # variables begin at multiples of this many floats


class TreeSum:
    """The sum of the slices of a step, added in a tree, from left to right (tree_accumulator.h)."""

    def __init__(self) -> None:
        self._spare: List[np.ndarray] = []
        self._halves: Dict[int, Optional[np.ndarray]] = {}  # left halves by level; None: no samples

    def add(self, index: int, gradient: Optional[np.ndarray]) -> None:
        """Slices come in their order. None: the slice has no samples."""
        total, level = gradient, 0
        while index >> level & 1:
            total = self._join(self._halves.pop(level), total, gradient)
            level += 1
        if total is not None and total is gradient:  # the next slice overwrites it
            total = self._spare.pop() if self._spare else np.empty_like(total)
            np.copyto(total, gradient)
        self._halves[level] = total

    def take(self) -> np.ndarray:
        """The sum of the step. It is valid until the next add."""
        total = None
        for level in sorted(self._halves):
            total = self._join(self._halves[level], total, None)
        self._halves.clear()
        assert total is not None
        self._spare.append(total)
        return total

    def _join(self, left: Optional[np.ndarray], right: Optional[np.ndarray],
              not_ours: Optional[np.ndarray]) -> Optional[np.ndarray]:
        if left is None or right is None:
            return right if left is None else left
        with np.errstate(all="ignore"):  # gradients may be infinite
            left += right
        if right is not not_ours:
            self._spare.append(right)
        return left


@dataclasses.dataclass
class Segment:
    """Floats with the same settings."""

    begin: int
    end: int
    weight_decay: Optional[float]  # None: the optimizer's
    learning_rate_multiplier: float  # 0: frozen
    averaged: bool

    @property
    def settings(self) -> Tuple[Optional[float], float, bool]:
        return self.weight_decay, self.learning_rate_multiplier, self.averaged


class Updater:
    """An optimizer of the server. ``text``: an Optimizer of the config, as the program names it."""

    _defaults = {"type": "SGD", "momentum": "", "beta1": "0.9", "beta2": "0.999", "epsilon": "1e-8",
                 "rho": "0.99", "weight_decay": "0", "decay_type": "", "clip_norm": "0"}

    def __init__(self, text: str) -> None:
        said = dict(re.findall(r"(\w+)\s*:\s*(\S+)", text))
        types = ("SGD", "MOMENTUM", "NESTEROV", "ADAM", "ADAMW", "RMSPROP", "PROGRAM")
        known = {"type"} if said.get("type") == "PROGRAM" else self._defaults.keys()
        if not said.keys() <= known or said.get("type", "SGD") not in types:
            raise UsageError(f"the optimizer \"{text}\" needs `muster launch`: in a process alone, "
                             f"expected {', '.join(known)}; types {', '.join(types)}")
        values = {**self._defaults, **said}
        self.type = values["type"]
        self._is_adam = self.type in ("ADAM", "ADAMW")
        self._is_decoupled = values["decay_type"] == "DECOUPLED" or \
            self.type == "ADAMW" and not values["decay_type"]
        self._momentum = np.float32(values["momentum"] or (0 if self.type == "RMSPROP" else 0.9))
        self._betas = float(values["beta1"]), float(
            values["rho" if self.type == "RMSPROP" else "beta2"])
        self._epsilon = np.float32(values["epsilon"])
        self._weight_decay = float(np.float32(values["weight_decay"]))
        self._clip_norm = float(np.float32(values["clip_norm"]))
        self._updates = 0
        self._states: List[np.ndarray] = []

    def update(self, weights: np.ndarray, gradient: np.ndarray, segments: List[Segment],
               rate: float) -> None:
        """Changes the weights in place."""
        if self._updates == 0:
            count = {"SGD": 0, "MOMENTUM": 1, "NESTEROV": 1}.get(self.type, 2)
            self._states = [np.zeros_like(weights) for _ in range(count)]
            self._scratch = np.empty((3, _PIECE), np.float32)
        self._updates += 1
        with np.errstate(all="ignore"):
            scale = self._scale(gradient, segments)
            for one in segments:
                if one.averaged:
                    part = slice(one.begin, one.end)  # w + (s - w) is not always s
                    weights[part] += gradient[part] - weights[part]
                    check_finite(weights[part])
                elif one.learning_rate_multiplier > 0:
                    self._update(weights, gradient, one, rate, scale)
                else:
                    check_finite(gradient[one.begin:one.end])

    def _scale(self, gradient: np.ndarray, segments: List[Segment]) -> np.float32:
        """That of clip_norm. Its sum has a fixed order, too (ps/update/average_gradient.cc)."""
        if self._clip_norm <= 0:
            return np.float32(1)
        lines = np.zeros(len(gradient) // _LINE)
        for one in segments:
            if one.averaged or one.learning_rate_multiplier == 0:
                continue
            for at in range(one.begin, one.end, _PIECE):
                end = min(at + _PIECE, one.end)
                squares = gradient[at:end].reshape(-1, _LINE).astype(np.float64)**2
                for half in (8, 4, 2, 1):
                    squares = squares[:, :half] + squares[:, half:]
                lines[at // _LINE:end // _LINE] = squares[:, 0]
        norm = math.sqrt(_sum(lines))
        return np.float32(min(1.0, self._clip_norm / (norm + 1e-6)))

    def _update(self, weights: np.ndarray, gradient: np.ndarray, segment: Segment, rate: float,
                scale: np.float32) -> None:
        one = np.float32
        rate *= float(one(segment.learning_rate_multiplier))
        decay = self._weight_decay if segment.weight_decay is None else float(
            one(segment.weight_decay))
        coupled = one(0 if self._is_decoupled else decay)
        beside = one(rate * decay if self._is_decoupled else 0)
        corrections = [1 - beta**self._updates if self._is_adam else 1.0 for beta in self._betas]
        first = one(rate / corrections[0])
        root = one(math.sqrt(corrections[1]))
        for at in range(segment.begin, segment.end, _PIECE):
            part = slice(at, min(at + _PIECE, segment.end))
            w, (g, t, u) = weights[part], self._scratch[:, :part.stop - at]
            np.multiply(w, coupled, out=g)
            g += gradient[part] if scale == 1 else np.multiply(gradient[part], scale, out=u)
            states = [state[part] for state in self._states]
            self._direction(g, t, u, states, root)
            t *= first
            np.multiply(w, beside, out=u)
            t += u
            w -= t
            check_finite(w, *states[:1])

    def _direction(self, g: np.ndarray, t: np.ndarray, u: np.ndarray, states: List[np.ndarray],
                   root: np.float32) -> None:
        """Writes the direction of the gradient g to t, and the next state."""
        first, second = (np.float32(beta) for beta in self._betas)
        rest, rest2 = (np.float32(1 - beta) for beta in self._betas)
        if self.type == "SGD":
            np.copyto(t, g)
        elif self.type in ("MOMENTUM", "NESTEROV"):
            states[0] *= self._momentum
            states[0] += g
            np.copyto(t, states[0])
            if self.type == "NESTEROV":
                t *= self._momentum
                t += g
        else:
            square, m = states
            np.multiply(g, rest2, out=u)
            u *= g
            square *= second
            square += u
            np.sqrt(square, out=u)
            if self._is_adam:
                m *= first
                np.multiply(g, rest, out=t)
                m += t
                u /= root
            u += self._epsilon
            np.divide(m if self._is_adam else g, u, out=t)
            if not self._is_adam and self._momentum > 0:
                m *= self._momentum
                m += t
                np.copyto(t, m)


class LossScale:
    """That of the server (ps/update/loss_scale.h)."""

    _least, _most, _interval = 0.5, 2.0**32, 2000

    def __init__(self) -> None:
        self.value = 65536.0
        self._good_steps = 0

    def skips(self, gradient: np.ndarray) -> bool:
        """Counts a step, with its whole gradient. Whether it must not change the weights."""
        if np.isfinite(gradient).all():
            self._good_steps += 1
            if self._good_steps == self._interval:
                self.value = min(self.value * 2, self._most)
                self._good_steps = 0
            return False
        if self.value <= self._least:
            raise Error(f"a gradient is not finite, and the loss scale is only {self.value:g}: try a smaller "
                        f"learning rate")
        self.value /= 2
        self._good_steps = 0
        return True


def check_finite(*arrays: np.ndarray) -> None:
    for one in arrays:
        if not np.isfinite(one).all():
            raise Error("a gradient or a new weight is not finite: try a smaller learning rate")


def _sum(values: np.ndarray) -> float:
    """Halves of halves; at most 64 values are added one by one."""
    if len(values) <= 64:
        return float(np.add.accumulate(values)[-1]) if len(values) else 0.0
    half = len(values) // 2
    return _sum(values[:half]) + _sum(values[half:])
