"""What must be the same in every process of a job, though nothing sends it: frozen parameters,
buffers, and which modules are in training mode."""

import hashlib
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

import torch

from muster._client import UsageError

_ELEMENTS = 16  # of each tensor: compared after every slice
_STEPS = 8  # between two tensors that are compared in whole


class Sample:
    """Some elements of tensors. They show changes through ``.data``, which has its own version."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self._tensors = tensors
        self._places = [_places(tensor) for tensor in tensors]
        groups: Dict[Tuple[torch.device, torch.dtype], List[int]] = {}
        for i, tensor in enumerate(tensors):
            if tensor.numel() > 0 and _can_take(tensor):
                groups.setdefault((tensor.device, tensor.dtype), []).append(i)
        self._groups = list(groups.values())
        self.remember()

    def remember(self) -> None:
        self._before = self._take()

    def changed(self) -> Optional[int]:
        """Which tensor has changed since then, or None."""
        for group, before, now in zip(self._groups, self._before, self._take()):
            if torch.equal(before, now):
                continue
            for i, one in enumerate((before != now).view(len(group), -1).any(1).tolist()):
                if one:
                    return group[i]
        return None

    def _take(self) -> List[torch.Tensor]:
        with torch.no_grad():
            taken = [torch.cat([torch.take(self._tensors[i], self._places[i]) for i in group])
                     for group in self._groups]
        return [one.view(torch.uint8) for one in taken]  # NaN is not equal to itself


def _can_take(tensor: torch.Tensor) -> bool:
    try:
        torch.take(tensor.detach(), torch.zeros(1, dtype=torch.int64, device=tensor.device))
    except (NotImplementedError, RuntimeError):  # torch lacks it for float8, for example
        return False
    return True


def _places(tensor: torch.Tensor) -> torch.Tensor:
    """The first, the last, and others between them; of a small tensor some come twice."""
    places = torch.arange(_ELEMENTS) * (tensor.numel() - 1) // (_ELEMENTS - 1)
    return places.to(tensor.device)


class _Constant:
    """A tensor of a module: a frozen parameter or a buffer."""

    def __init__(self, path: str, container: Dict[str, Any], name: str) -> None:
        self.path = path
        self.tensor: torch.Tensor = container[name]
        self.digest = self._hash()
        self._container = container
        self._name = name
        self._state = self._read_state()

    def check(self) -> None:
        if self._container.get(self._name) is not self.tensor:
            self.refuse()
        if isinstance(self.tensor, torch.nn.Parameter) and self.tensor.requires_grad:
            raise UsageError(f"parameter {self.path} was unfrozen after prepare: the job trains the "
                             f"parameters that require gradients in prepare")
        if self._read_state() != self._state:
            self.compare()
            self._state = self._read_state()

    def compare(self) -> None:
        if self._hash() != self.digest:
            self.refuse()

    def refuse(self) -> None:
        kind = "frozen parameter" if isinstance(self.tensor, torch.nn.Parameter) else "buffer"
        raise UsageError(
            f"the program has changed the {kind} {self.path} since steps was called. Only trained "
            f"parameters and the running statistics of batch and instance norms may change, because "
            f"a process that replaces another gets only these. For weights that the program sets "
            f"itself (a teacher, a target network): prepare(..., update=\"program\"), let them require "
            f"gradients, leave them out of the optimizer, and change them in the body if "
            f"job.is_updater")

    def _read_state(self) -> Tuple[int, int]:
        return self.tensor._version, self.tensor.data_ptr()

    def _hash(self) -> bytes:
        digest = hashlib.blake2b(str(tuple(self.tensor.shape)).encode(), digest_size=8)
        flat = self.tensor.detach().cpu().contiguous().flatten()
        digest.update(flat.view(torch.uint8).numpy())
        return digest.digest()


class Constants:
    """The frozen parameters and the buffers of a model, except ``others``."""

    def __init__(self, model: torch.nn.Module, others: Sequence[torch.Tensor]) -> None:
        self._all: List[_Constant] = []
        known: Set[int] = {id(tensor) for tensor in others}
        for kind in ("_parameters", "_buffers"):
            for prefix, module in model.named_modules():
                container = getattr(module, kind)
                for name, tensor in container.items():
                    if tensor is None or tensor.requires_grad or id(tensor) in known:
                        continue
                    known.add(id(tensor))
                    path = f"{prefix}.{name}" if prefix else name
                    self._all.append(_Constant(path, container, name))
        self._sample = Sample([one.tensor for one in self._all])
        self._next_step = 0  # in which one of them is compared in whole

    @property
    def fingerprint(self) -> int:
        digest = hashlib.blake2b(b"".join(one.digest for one in self._all), digest_size=8)
        return int.from_bytes(digest.digest(), "little")

    def check(self, step: int) -> None:
        """Raises UsageError for one that has changed."""
        for one in self._all:
            one.check()
        changed = self._sample.changed()
        if changed is not None:
            self._all[changed].refuse()
        if self._all and step >= self._next_step:
            self._next_step = step + _STEPS
            self._all[step // _STEPS % len(self._all)].compare()


class Modes:
    """Which modules of a model are in training mode."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._modes = [(path, module, module.training) for path, module in model.named_modules()]

    def check(self) -> None:
        """Raises UsageError for a module whose mode has changed."""
        for path, module, is_training in self._modes:
            if module.training != is_training:
                names = {True: "training", False: "evaluation"}
                raise UsageError(
                    f"{f'module {path}' if path else 'the model'} is in {names[not is_training]} mode "
                    f"at the begin of a slice, and was in {names[is_training]} mode before the loop: "
                    f"slices begin alike in every process. Set modes before the loop over slices or "
                    f"steps, and undo what the body changes (model.train() after an evaluation). "
                    f"Changes in the inner loop are undone after each slice")

    def restore(self) -> None:
        for _, module, is_training in self._modes:
            module.training = is_training
