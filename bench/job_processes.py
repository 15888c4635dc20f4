"""Finds the processes of a run in /proc."""
import os


def processes_of(folder):
    """Returns all processes whose command line contains the folder: launcher, server and workers."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if b"muster" in os.path.basename(words[0]) and any(folder.encode() in word for word in words):
            found.append(int(name))
    return found


def member(folder, program):
    """Returns the processes of the run that execute this program."""
    found = []
    for pid in processes_of(folder):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if os.path.basename(words[0]).decode() == program:
            found.append(pid)
    return found


def descriptors_of(pid):
    """Returns the number of open descriptors; 0 if the process has ended."""
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0
