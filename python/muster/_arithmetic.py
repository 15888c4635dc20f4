"""What computes, and how. Set before CUDA starts, so that GPUs of one model compute the same bits."""

import os
import re
import warnings
from typing import Any, List, Optional

import torch

_PATTERN = re.compile(r"(\S+) does not have a deterministic implementation")


def set_up(precision: Optional[str], deterministic: bool) -> None:
    """Nothing where there is no GPU: there the processor's libraries are deterministic."""
    if not torch.cuda.is_available():
        return
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    if not deterministic:
        return
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        print("muster: CUDA was started before the job, so cuBLAS may compute other bits in other runs: expected "
              "Job(), or the first use of muster.torch.job, before", flush=True)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS reads it when it starts
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False  # it would choose by time
    if not torch.are_deterministic_algorithms_enabled():
        torch.use_deterministic_algorithms(True, warn_only=True)
        setattr(torch.utils.deterministic, "fill_uninitialized_memory", False)


def describe(device: torch.device) -> str:
    """Processes of a job must agree in this."""
    if device.type != "cuda":
        return f"{device.type.upper()}, torch {torch.__version__}"
    card = torch.cuda.get_device_properties(device)
    libraries = f"torch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}"  # type: ignore[no-untyped-call]
    tf32 = "TF32" if torch.backends.cudnn.allow_tf32 else "no TF32"
    return f"{card.name} (sm_{card.major}{card.minor}), {libraries}, {tf32}"


class Operators:
    """Those of which torch has warned that their results differ from run to run."""

    def __init__(self) -> None:
        self._new: List[str] = []
        self._known: List[str] = []
        self._plain = warnings.showwarning
        warnings.showwarning = self._show
        warnings.filterwarnings("always", message=f".*{_PATTERN.pattern[6:]}")

    def _show(self, message: Any, *where: Any, **more: Any) -> None:
        found = _PATTERN.search(str(message))
        if found is None:
            self._plain(message, *where, **more)
        elif found[1] not in self._known:
            self._known.append(found[1])
            self._new.append(found[1])

    def take(self) -> List[str]:
        """Those since the last call."""
        found, self._new = self._new, []
        return found
