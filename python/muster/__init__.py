"""Muster: synchronous data parallelism with the same bits on any number of workers.

``muster.torch`` trains a PyTorch model, ``muster.numpy`` gradients that you compute yourself. Both
are started with ``muster launch -- python PROGRAM``. See docs/OWN_MODEL.md and
docs/OWN_GRADIENTS.md.
"""

from muster._client import Error, UsageError, programs

__all__ = ["Error", "UsageError", "programs"]
