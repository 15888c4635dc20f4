"""The command ``muster`` of the installed package."""

import os
import sys

from muster._client import programs


def main() -> None:
    program = programs() / "muster"
    os.execv(program, [str(program), *sys.argv[1:]])
