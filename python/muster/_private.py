"""A server for a program that was not started by ``muster launch``.

It starts ``muster launch CONFIG --workers 1``, whose only worker is muster/_relay.py. That hands
over its environment, so this process becomes the worker.
"""

import json
import os
import pathlib
import socket
import subprocess
import sys
import time
from typing import List, Optional, Tuple

from muster._client import UsageError, programs
from muster._relay import is_ours

_START_S = 60
_server: "Optional[Tuple[socket.socket, subprocess.Popen[bytes]]]" = None


def ensure_job(config: Optional[str]) -> None:
    """Leaves the environment as ``muster launch`` sets it."""
    if os.environ.get("MUSTER_ENDPOINT"):
        return
    if config is None:
        raise UsageError("this program was not started by `muster launch -- COMMAND`: start it so, "
                         "or name a config: Job(config=\"job.txtpb\"), or set MUSTER_ALONE=1 to train "
                         "in this process alone")
    if not os.path.isfile(config):
        raise UsageError(f"{config}: expected a config file")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    name = f"muster-private-{os.urandom(16).hex()}"
    listener.bind("\0" + name)
    listener.listen(1)
    listener.settimeout(_START_S)
    launcher = programs() / "muster"
    # A replacement would have nobody to hand its environment to. A resumed run starts this program.
    command = [str(launcher) if launcher.exists() else "muster", "launch", config, "--workers", "1",
               "--set", "cluster.on_lost_worker=ABORT", "--", sys.executable, "-I",
               str(pathlib.Path(__file__).parent / "_relay.py"), name, sys.executable, *_arguments()]
    try:
        # In a session of its own: Ctrl-C reaches this process, which then stops the launcher.
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    except OSError as error:
        raise UsageError(f"cannot start {command[0]}: {error}; set MUSTER_PROGRAMS to the folder "
                         f"of Muster's programs") from error
    relay = _accept(listener, process)
    with relay.makefile("r") as lines:
        os.environ.update(json.loads(lines.readline()))
    global _server
    _server = relay, process


def _arguments() -> List[str]:
    """Those of this Python, including -m and -c where it knows them."""
    return list(getattr(sys, "orig_argv", [""] + sys.argv)[1:])


def _accept(listener: socket.socket, process: "subprocess.Popen[bytes]") -> socket.socket:
    listener.settimeout(0.2)
    until = time.monotonic() + _START_S
    while time.monotonic() < until:
        if process.poll() is not None:
            raise SystemExit(process.returncode or 1)  # the launcher has said why
        try:
            relay, _ = listener.accept()
        except socket.timeout:
            continue
        if not is_ours(relay):
            relay.close()
            continue
        relay.settimeout(None)
        return relay
    process.kill()
    raise UsageError(f"the server did not start within {_START_S} s")


def end(is_over: bool) -> None:
    """Waits for the private server, if there is one."""
    if _server is None:
        return
    relay, process = _server
    try:
        relay.sendall(b"0" if is_over else b"1")
    except OSError:
        pass
    relay.close()
    if not is_over:
        process.terminate()  # it saves the run; a shell script may have made it ignore SIGINT
    try:
        process.wait(_START_S)
    except subprocess.TimeoutExpired:
        process.kill()
