"""Finds losses that are not a mean over the samples of a slice, by the operations that made them. A
step would add such losses of its slices with the wrong shares, and nobody would notice."""

from typing import Any, List, Optional, Tuple

import torch

_NONE, _MEAN, _SUM = 0, 1, 2  # the values of at::Reduction
_SUMS = ("AddBackward", "SubBackward", "ToCopyBackward")
_SCALES = ("MulBackward", "DivBackward", "NegBackward")
_MOST_NODES = 32


def why_no_mean(loss: torch.Tensor, samples: int, batch: int, waits: bool) -> Optional[str]:
    """Of a slice of a batch. None if nothing is known. It looks through sums, products and
    conversions. A scaled sum may be a mean, except if the scale is the batch. ``waits``: whether it
    may wait for a GPU."""
    waiting: List[Tuple[Any, bool]] = [(loss.grad_fn, False)]
    for _ in range(_MOST_NODES):
        if not waiting:
            break
        node, is_scaled = waiting.pop()
        if node is None:
            continue
        name = node.name().rstrip("0123456789")
        reduction = getattr(node, "_saved_reduction", None)
        if not is_scaled and (reduction == _SUM or name == "SumBackward" and _is_of_losses(node)):
            return "is a sum over the samples: expected job.backward(loss, reduction=\"sum\"), or a mean, or " \
                   "reduction=\"mean\" if it is one"
        total = getattr(node, "_saved_total_weight", None) if waits and reduction == _MEAN else None
        if total is not None and node._saved_target.dim() == 1 and node._saved_target.numel() % samples != 0:
            return f"is a mean over {node._saved_target.numel()} targets of {samples} samples: expected " \
                   f"job.backward(loss, weight=that), because slices have different numbers of them"
        if total is not None and _differs(total, node._saved_target.numel()):
            return f"is a mean over targets that weigh {float(total):g}, of {node._saved_target.numel()}, because " \
                   f"some are ignored or classes have weights: expected job.backward(loss, weight=that), such as " \
                   f"weight=(y != -100).sum() or weight=class_weights[y].sum()"
        if name in _SUMS + _SCALES:
            is_scaled |= name in _SCALES and not (waits and samples != batch == _divisor(node, name))
            waiting += [(one, is_scaled) for one, _ in node.next_functions]
    return None


def _is_of_losses(node: Any) -> bool:
    """Whether a sum adds what a loss with reduction="none" gave."""
    source = node.next_functions[0][0]
    return getattr(source, "_saved_reduction", None) == _NONE


def _differs(total: torch.Tensor, count: int) -> bool:
    """More than the rounding of a total of 16 bits."""
    return abs(float(total) - count) > count * torch.finfo(total.dtype).eps and bool(torch.isfinite(total))


def _divisor(node: Any, name: str) -> Optional[float]:
    other = getattr(node, "_saved_other", None) if name == "DivBackward" else None
    return float(other) if isinstance(other, torch.Tensor) and other.numel() == 1 else None
