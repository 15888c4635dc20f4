"""The command ``muster`` of the wheel. Outside the package, whose modules import NumPy."""

import os
import pathlib
import sys


def main() -> None:
    program = pathlib.Path(__file__).parent / "muster" / "bin" / "muster"
    try:
        os.execv(program, [str(program), *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"muster: error: cannot start {program}: {error.strerror}; reinstall muster-train")
