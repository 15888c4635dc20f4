#!/usr/bin/env python3
"""Reports comments and documents that are not written as CONTRIBUTING.md asks: scripts/check_words.py

- A comment does not open with Of, Who, Whose, Whom, What of, Those or Nor: name the subject first.
- A comment is complete: it does not begin with "…", as the rest of a sentence above another declaration.
- Lines of documents have at most 100 columns, except in tables, verbatim text and lines that are one link.

Exit code 1 if there is any.
"""
import re
import subprocess
import sys

OPENING = re.compile(r"(Of|Whom?|Whose|What of|Those|Nor)\b")
MARKS = {".cc": "//", ".h": "//", ".cu": "//", ".cuh": "//", ".inc": "//", ".proto": "//", ".py": "#", ".sh": "#", ".cmake": "#",
         ".txtpb": "#", "CMakeLists.txt": "#"}


def comment_openings(path, mark):
    """Yields line number and text of the first line of each comment."""
    inside = False
    with open(path, errors="replace") as file:
        for number, line in enumerate(file, 1):
            code, found, text = line.partition(mark + " ")
            own_line = found and not code.strip()
            if found and (not own_line or not inside) and '"' not in code:
                yield number, text.strip()
            inside = own_line


def findings(path):
    if path.endswith(".md"):
        verbatim = False
        with open(path) as file:
            for number, line in enumerate(file, 1):
                line = line.rstrip("\n")
                verbatim ^= line.lstrip().startswith("```")
                free = verbatim or line.startswith(("|", "    ")) or " " not in line.strip()
                if len(line) > 100 and not free:
                    yield number, f"{len(line)} columns"
        return
    mark = next((mark for end, mark in MARKS.items() if path.endswith(end)), None)
    if mark is None:
        return
    for number, text in comment_openings(path, mark):
        if OPENING.match(text) or text.startswith(("…", "... ")):
            yield number, text[:80]


def main():
    files = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], stdout=subprocess.PIPE, check=True, text=True)
    found = 0
    for path in sorted(set(files.stdout.split("\n"))):
        try:
            for number, text in findings(path):
                print(f"{path}:{number}: {text}")
                found += 1
        except (FileNotFoundError, IsADirectoryError):
            pass  # deleted, or a submodule
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
