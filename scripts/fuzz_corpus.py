#!/usr/bin/env python3
"""Packs and unpacks the saved inputs of the fuzz targets, tests/fuzz/corpus/TARGET.inputs.

    scripts/fuzz_corpus.py pack [--unnamed FOLDER] TARGET ...
    scripts/fuzz_corpus.py unpack TARGET FOLDER

A line is an input in quotes, optionally after a name and a =, as in libFuzzer's dictionaries: \\\\ and \\"
stand for these characters, \\xAB for the byte AB, all other bytes for themselves. Names contain a dot
(WHAT.found, WHAT.seed); inputs that libFuzzer found have no name. Tests replay these files, and plain
ones in tests/fuzz/corpus/TARGET/ (tests/fuzz/replay_main.cc).

pack moves the plain files of that folder into TARGET.inputs. With --unnamed, the files of FOLDER replace
the inputs without a name. unpack writes each input to a file in FOLDER.
"""
import argparse
import hashlib
import os
import re
import sys

CORPUS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests/fuzz/corpus")


def quoted(data):
    plain = {ord("\\"): "\\\\", ord('"'): '\\"'}
    return "".join(plain.get(b, chr(b) if 32 <= b < 127 else f"\\x{b:02X}") for b in data)


def unquoted(text):
    escaped = re.sub(r"\\(x[0-9A-F]{2}|.)",
                     lambda m: chr(int(m[1][1:], 16)) if len(m[1]) > 1 else m[1], text)
    return escaped.encode("latin-1")


def read_pack(target):
    """(name, bytes) of each input; the name may be ""."""
    path = os.path.join(CORPUS, target + ".inputs")
    if not os.path.exists(path):
        return []
    inputs = []
    with open(path, encoding="ascii") as lines:
        for number, line in enumerate(lines, 1):
            match = re.fullmatch(r'(?:([\w.+-]+)=)?"(.*)"\n', line)
            if not match:
                sys.exit(f'{path}:{number}: expected "INPUT" or NAME="INPUT", got: {line.rstrip()}')
            inputs.append((match[1] or "", unquoted(match[2])))
    return inputs


def read_folder(folder):
    inputs = []
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
        with open(os.path.join(folder, name), "rb") as file:
            inputs.append((name if "." in name else "", file.read()))
    return inputs


def pack(target, unnamed):
    folder = os.path.join(CORPUS, target)
    inputs = read_pack(target) + read_folder(folder)
    if unnamed is not None:
        inputs = [entry for entry in inputs if entry[0]] + [("", data) for _, data in read_folder(unnamed)]
    named = {data for name, data in inputs if name}
    kept = sorted({(name, data) for name, data in inputs if name or data not in named},
                  key=lambda entry: (entry[0] == "", entry[0], len(entry[1]), entry[1]))
    with open(os.path.join(CORPUS, target + ".inputs"), "w", encoding="ascii") as file:
        for name, data in kept:
            file.write(f'{name}="{quoted(data)}"\n' if name else f'"{quoted(data)}"\n')
    if os.path.isdir(folder):
        for name in os.listdir(folder):
            os.remove(os.path.join(folder, name))
        os.rmdir(folder)
    print(f"{target}: {len(kept)} inputs, {sum(len(data) for _, data in kept)} bytes")


def unpack(target, folder):
    os.makedirs(folder, exist_ok=True)
    for name, data in read_pack(target):
        with open(os.path.join(folder, name or hashlib.sha1(data).hexdigest()), "wb") as file:
            file.write(data)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    packs = commands.add_parser("pack")
    packs.add_argument("--unnamed", metavar="FOLDER")
    packs.add_argument("targets", metavar="TARGET", nargs="+")
    unpacks = commands.add_parser("unpack")
    unpacks.add_argument("target", metavar="TARGET")
    unpacks.add_argument("folder", metavar="FOLDER")
    arguments = parser.parse_args()
    if arguments.command == "unpack":
        unpack(arguments.target, arguments.folder)
    else:
        for target in arguments.targets:
            pack(target, arguments.unnamed)


if __name__ == "__main__":
    main()
