"""The processes of a run, from /proc."""
import os


def processes_of(folder):
    """Every process whose command line names the folder: launcher, server and workers."""
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
    """Those of the run that are this program."""
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
    """How many a process has; 0 if it is gone."""
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0
