"""Shows what stuck processes are doing."""
import os
import shutil
import subprocess


def _read(path):
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError as error:
        return f"({error.strerror})"


def _threads(pid):
    try:
        return sorted(os.listdir(f"/proc/{pid}/task"), key=int)
    except OSError:
        return []


def _backtraces(pid):
    if not shutil.which("gdb"):
        return "(no gdb)"
    try:
        return subprocess.run(["gdb", "-p", str(pid), "-batch", "-ex", "thread apply all bt 30"],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              text=True, errors="replace", timeout=60).stdout
    except subprocess.TimeoutExpired:
        return "(gdb took more than 60 s)"


def diagnose(pids):
    """Describes each process: its command, and where each thread is, in the kernel and in the program."""
    lines = []
    for pid in pids:
        words = _read(f"/proc/{pid}/cmdline").replace("\0", " ")
        lines.append(f"pid {pid}, child of {_read(f'/proc/{pid}/stat').rsplit(')', 1)[-1].split()[1:2]}: {words}")
        for thread in _threads(pid):
            at = f"/proc/{pid}/task/{thread}"
            state = _read(f"{at}/stat").rsplit(")", 1)[-1].split()[:1]
            lines.append(f"  thread {thread} {_read(f'{at}/comm')} {state}: waits in {_read(f'{at}/wchan')}, "
                         f"system call {_read(f'{at}/syscall')}")
            lines += ["    " + line for line in _read(f"{at}/stack").splitlines()]
        lines += ["  " + line for line in _backtraces(pid).splitlines()]
    return "\n".join(lines)
