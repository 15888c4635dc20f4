"""The worker of a private server (muster/_private.py): hands its environment to the program at the
other end of the socket, and ends when the program does.

usage: _relay.py SOCKET PROGRAM [ARGUMENT...]
"""

import json
import os
import socket
import struct
import sys


def is_ours(connection: socket.socket) -> bool:
    """Whether a process of this user is at the other end: all users can see the socket's name."""
    size = struct.calcsize("3i")
    _, user, _ = struct.unpack(
        "3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return bool(user == os.geteuid())


def main() -> int:
    if "MUSTER_UPDATE_FD" in os.environ:  # one more process of the program
        os.execv(sys.argv[2], sys.argv[2:])
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(5)  # another user's socket of this name may keep it waiting
    try:
        connection.connect("\0" + sys.argv[1])
        is_there = is_ours(connection)
    except OSError:
        is_there = False
    if not is_there:  # a resumed run: start the program
        os.execv(sys.argv[2], sys.argv[2:])
    connection.settimeout(None)
    job = {name: value for name, value in os.environ.items()
           if name.startswith("MUSTER_") or name in ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES")}
    connection.sendall(json.dumps(job).encode() + b"\n")
    return 0 if connection.recv(1) == b"0" else 1


if __name__ == "__main__":
    sys.exit(main())
