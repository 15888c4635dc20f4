#!/usr/bin/env python3
"""Fails if two files define types with the same name in the same namespace: if both are linked, C++ uses
one of them for both (the one-definition rule), and readers confuse them.

    scripts/check_names.py [ROOT]

Ignores types in unnamed namespaces, which are local to their source file.
"""
import collections
import os
import re
import sys

ROOMS = ("bench", "common", "cli", "ps", "tests", "worker")


def types_of(source):
    """(namespace, type) of each type that is not nested in another type."""
    definition = re.compile(r"(?:class|struct|enum class|union) (\w+)(.*)")
    namespaces = []
    for line in source.splitlines():
        if opened := re.match(r"namespace\s*([\w:]*)\s*\{", line):
            namespaces.append(opened[1])
        elif line.startswith("}  // namespace") and namespaces:
            namespaces.pop()
        elif (defined := definition.match(line)) and "" not in namespaces:
            # Skip declarations, and nested types, which are qualified by the name of the outer type.
            if not re.match(r"(?:\s*:\s*\w+)?;$|::", defined[2]):
                yield "::".join(namespaces), defined[1]


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    places = collections.defaultdict(list)
    for room in ROOMS:
        for folder, _, names in os.walk(os.path.join(root, room)):
            for name in sorted(names):
                if name.endswith((".h", ".cc", ".cu", ".inc")):
                    path = os.path.join(folder, name)
                    with open(path) as source:
                        for named in types_of(source.read()):
                            places[named].append(os.path.relpath(path, root))
    twice = {named: files for named, files in sorted(places.items()) if len(files) > 1}
    for (namespace, name), files in twice.items():
        print(f"{namespace}::{name} is defined in {' and '.join(files)}")
    return 1 if twice else 0


if __name__ == "__main__":
    sys.exit(main())
