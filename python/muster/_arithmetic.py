"""What computes, and how. Set before CUDA starts, so that GPUs of one model compute the same bits."""

import os
import re
import warnings
from typing import Any, List, Optional

import torch

_PATTERN = re.compile(r"(\S+) does not have a deterministic implementation|"
                      r"((?:Flash|Memory Efficient) Attention) defaults to a non-deterministic")


def set_up(precision: Optional[str], deterministic: bool) -> None:
    """Nothing where there is no GPU: there the processor's libraries are deterministic."""
    if not torch.cuda.is_available():
        return
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    if not deterministic:
        return
    if "CUBLAS_WORKSPACE_CONFIG" not in os.environ:  # cuBLAS reads it when it starts
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            print("muster: CUDA was started before the job, so cuBLAS may compute other bits in other runs: "
                  "expected Job(), or the first use of muster.torch.job, before", flush=True)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False  # it would choose by time
    if not torch.are_deterministic_algorithms_enabled():
        torch.use_deterministic_algorithms(True, warn_only=True)
        if hasattr(torch.utils, "deterministic"):
            setattr(torch.utils.deterministic, "fill_uninitialized_memory", False)


def describe(device: torch.device) -> str:
    """Processes of a job must agree in this."""
    if device.type != "cuda":
        return f"{device.type.upper()}, torch {torch.__version__}"
    card = torch.cuda.get_device_properties(device)
    libraries = f"torch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}"  # type: ignore[no-untyped-call]
    return f"{card.name} (sm_{card.major}{card.minor}), {libraries}, {'TF32' if _uses_tf32() else 'no TF32'}"


def _uses_tf32() -> bool:
    try:
        return torch.backends.cudnn.allow_tf32 or torch.backends.cuda.matmul.allow_tf32
    except RuntimeError:  # set in torch's newer way
        return True


class Operators:
    """Those of which torch has warned that their results differ from run to run."""

    def __init__(self) -> None:
        self._new: List[str] = []
        self._known: List[str] = []
        self._plain = warnings.showwarning
        warnings.showwarning = self._show
        self._filter: Any = None
        self._listen()

    def _listen(self) -> None:
        """A later filter of the program would hide them."""
        if self._filter is None or not warnings.filters or warnings.filters[0] is not self._filter:
            warnings.filterwarnings("always", message=".*(not have a deterministic|defaults to a non-determ)")
            self._filter = warnings.filters[0]

    def _show(self, message: Any, *where: Any, **more: Any) -> None:
        found = _PATTERN.search(str(message))
        if found is None:
            self._plain(message, *where, **more)
        elif (name := found[1] or found[2]) not in self._known:
            self._known.append(name)
            self._new.append(name)

    def take(self) -> List[str]:
        """Those since the last call."""
        self._listen()
        found, self._new = self._new, []
        return found
