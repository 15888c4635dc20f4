"""Tells errors of the environment from errors of the program."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from concurrent.futures.process import BrokenProcessPool
from typing import Iterator, Optional

# Torch raises a plain RuntimeError for these.
_KILLED = re.compile(r"DataLoader worker \(pid(\(s\))? [\d, ]+\) "
                     r"(is killed by signal|exited unexpectedly(?! with exit code))")
_NO_MEMORY = re.compile(r"an(no|')t allocate memory|unable to \w+ shared memory")


def is_killed(error: BaseException) -> bool:
    """Whether a signal has ended a helper process, such as a loader, and led to this error."""
    return any(
        isinstance(one, BrokenProcessPool) or
        isinstance(one, subprocess.CalledProcessError) and one.returncode < 0 or
        isinstance(one, RuntimeError) and _KILLED.search(str(one)) is not None or
        isinstance(one, EOFError) and _has_killed_child()
        for one in _chain(error))


def _has_killed_child() -> bool:
    """Whether a signal has ended a child that nobody has waited for. (Programs end theirs by SIGTERM.)"""
    time.sleep(0.1)  # its pipes close just before it has ended
    for children in pathlib.Path("/proc/self/task").glob("*/children"):
        for child in children.read_text().split():
            try:
                end = os.waitid(os.P_PID, int(child), os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                continue
            killed = end is not None and end.si_code in (os.CLD_KILLED, os.CLD_DUMPED)
            if killed and end.si_status != signal.SIGTERM:
                return True
    return False


def is_of_environment(error: BaseException) -> bool:
    """Whether a lack of memory or a broken connection has led to this error. Another process may do
    the same work without it."""
    kinds = (MemoryError, ConnectionError)
    if "torch" in sys.modules:
        kinds += (sys.modules["torch"].cuda.OutOfMemoryError,)  # type: ignore[assignment]
    return any(
        isinstance(one, kinds) or
        isinstance(one, (OSError, RuntimeError)) and _NO_MEMORY.search(str(one)) is not None
        for one in _chain(error))


def _chain(error: Optional[BaseException]) -> Iterator[BaseException]:
    """The error, and those that led to it."""
    seen = set()
    while error is not None and id(error) not in seen:
        yield error
        seen.add(id(error))
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
