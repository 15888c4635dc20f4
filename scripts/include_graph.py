#!/usr/bin/env python3
"""Prints which folders each folder includes, one line per folder, and fails if there is a cycle.

    scripts/include_graph.py [--edges] [ROOT]

--edges lists the includes of each edge. Tests are omitted: they may include anything.
"""
import collections
import os
import re
import sys

ROOMS = ("bench", "common", "cli", "proto", "ps", "worker")


def folder_edges(root):
    """{(from, to): [(file, included), ...]}"""
    edges = collections.defaultdict(list)
    for room in ROOMS:
        for folder, _, names in os.walk(os.path.join(root, room)):
            for name in names:
                if not name.endswith((".h", ".cc", ".cu", ".inc")):
                    continue
                path = os.path.join(folder, name)
                here = os.path.relpath(folder, root)
                with open(path) as source:
                    for included in re.findall(r'^#include "([^"]+)"', source.read(), re.M):
                        there = os.path.dirname(included)
                        if there != here:
                            edges[here, there].append((os.path.relpath(path, root), included))
    return edges


def reachable(neighbours, start):
    seen, todo = set(), [start]
    while todo:
        for other in neighbours.get(todo.pop(), ()):
            if other not in seen:
                seen.add(other)
                todo.append(other)
    return seen


def main():
    arguments = [a for a in sys.argv[1:] if a != "--edges"]
    root = arguments[0] if arguments else os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    edges = folder_edges(root)
    neighbours = collections.defaultdict(set)
    for here, there in edges:
        neighbours[here].add(there)
    for here in sorted(neighbours):
        print(here, "->", " ".join(sorted(neighbours[here])))
    if "--edges" in sys.argv:
        for (here, there), includes in sorted(edges.items()):
            print(f"{here} -> {there}: " + ", ".join(f"{a} includes {b}" for a, b in includes))
    circle = sorted(f for f in neighbours if f in reachable(neighbours, f))
    if circle:
        print("Cycle of folders that include each other:", " ".join(circle))
        for here, there in sorted(edges):
            if here in circle and there in circle:
                print(f"    {here} -> {there}: {edges[here, there][0]}")
        sys.exit(1)


main()
