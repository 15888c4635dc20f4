#!/usr/bin/env python3
"""Runs clang-tidy on one source, unless it found nothing before in the same code: scripts/tidy_source.py SOURCE

Reads build/tidy/compile_commands.json (scripts/check.sh). ~/.cache/muster/tidy has an empty file for each source that
was clean, named by a hash of all that decides: the source and its headers, the options, and the checks.
"""
import hashlib
import json
import os
import pathlib
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "muster" / "tidy"
GCC = subprocess.run(["gcc", "-print-file-name=include/omp.h"], capture_output=True, text=True, check=True).stdout
# omp.h comes from GCC, which builds Muster; clang's own headers come first.
OPTIONS = ["--quiet", "--extra-arg=-Wno-unknown-warning-option", f"--extra-arg=-idirafter{os.path.dirname(GCC)}"]


def key(source):
    """Returns the hash, or None if the source is in no target of this build."""
    commands = json.loads((ROOT / "build/tidy/compile_commands.json").read_text())
    found = next((one for one in commands if one["file"] == str(source)), None)
    if found is None:
        return None
    words = shlex.split(found["command"])
    words = words[words.index("--") + 1:] if "--" in words else words
    words = words[next(i for i, word in enumerate(words) if word.endswith("c++")):]  # without the cache's launcher
    output = words.index("-o")
    words = words[:output] + words[output + 2:]
    headers = subprocess.run([*words, "-M", "-MG"], cwd=found["directory"], capture_output=True, text=True)
    if headers.returncode:
        return None
    hashed = hashlib.sha256(subprocess.run(["clang-tidy", "--version"], capture_output=True, check=True).stdout)
    hashed.update((ROOT / ".clang-tidy").read_bytes())
    hashed.update(" ".join([*OPTIONS, *words]).replace(str(ROOT), "").encode())
    for path in headers.stdout.split(":", 1)[1].replace("\\\n", " ").split():
        full = pathlib.Path(found["directory"], path)
        hashed.update(path.replace(str(ROOT), "").encode())
        hashed.update(full.read_bytes() if full.exists() else b"")
    return hashed.hexdigest()


def main():
    source = pathlib.Path(sys.argv[1]).resolve()
    name = key(source)
    record = CACHE / (name or "none")
    if name and record.exists():
        return 0
    tidy = subprocess.run(["clang-tidy", "-p", str(ROOT / "build/tidy"), *OPTIONS, str(source)],
                          capture_output=True, text=True)
    errors = [line for line in tidy.stderr.splitlines() if " generated." not in line]
    print("\n".join([*tidy.stdout.splitlines(), *errors]), end="\n" if tidy.stdout or errors else "")
    if tidy.returncode == 0 and not tidy.stdout and name:
        CACHE.mkdir(parents=True, exist_ok=True)
        record.touch()
    return tidy.returncode


sys.exit(main())
