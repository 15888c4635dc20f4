#!/usr/bin/env python3
"""What a thousand strangers cost an encrypted server: processor time and memory.

    bench/stranger_costs.py [--bin DIR] [--strangers N] [--seconds S]

`muster server` on loopback with cluster.encryption=CURVE, waiting for its workers; first nobody comes, then so many
connections of people without the token, who stay for so long and come again when they are cut:

    silent     say nothing
    greeting   send ZMTP's greeting for CURVE, and no more
    hello      … and a HELLO whose box nobody can open: the server has to try (an X25519 and a Poly1305)

Prints the server's CPU seconds (user and system) beyond those of a server that nobody visits, for the time and for a
connection, and the growth of its memory at most.
"""
import argparse
import os
import random
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from faults.by_hand import free_port
from faults.watched import NETWORK
from job_processes import descriptors_of, member

GREETING = (b"\xff" + bytes(8) + b"\x7f" + b"\x03\x00" + b"CURVE".ljust(20, b"\0") + bytes(32))
MODES = ("nobody", "silent", "greeting", "hello")


def hello(rng):
    command = b"\x05HELLO\x01\x00" + bytes(72) + rng.randbytes(32) + bytes(8) + rng.randbytes(80)
    return b"\x04" + bytes([len(command)]) + command


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(pid):
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmRSS"))


class Strangers:
    def __init__(self, port, mode, many):
        self.port, self.rng, self.mode, self.many = port, random.Random(1), mode, many
        self.open, self.connected = {}, 0
        self.poll = select.poll()

    def words(self):
        return {"silent": b"", "greeting": GREETING, "hello": GREETING + hello(self.rng)}[self.mode]

    def connect(self):
        one = socket.create_connection(("127.0.0.1", self.port), 10)
        one.sendall(self.words())
        self.open[one.fileno()] = one
        self.poll.register(one, select.POLLIN)
        self.connected += 1

    def stay(self):
        """Those who were cut come again."""
        while len(self.open) < self.many:
            self.connect()
        for fd, _ in self.poll.poll(20):
            try:
                if self.open[fd].recv(4096):
                    continue
            except OSError:
                pass
            self.poll.unregister(fd)
            self.open.pop(fd).close()

    def end(self):
        for one in self.open.values():
            one.close()


def measure(arguments, work, mode):
    port, folder = free_port(), f"{work}/{mode}"
    with open(folder + ".txtpb", "w") as file:
        file.write(NETWORK % dict(steps=10, batch=64, slices=16, more="", workers=2, cluster="encryption: CURVE", every=100))
    with open(folder + ".log", "w") as out:
        server = subprocess.Popen([f"{arguments.bin}/muster", "server", folder + ".txtpb", "--run-dir", folder,
                                   "--endpoint", f"tcp://127.0.0.1:{port}", "--set", "deadlines.start_s=600"],
                                  stdout=out, stderr=out, stdin=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 60
        while "Listening" not in open(folder + ".log").read():
            if time.monotonic() > end or server.poll() is not None:
                raise SystemExit(f"the server does not listen: {folder}.log")
            time.sleep(0.05)
        pid = member(folder, "muster-server")[0]
        before, at_first, most, descriptors = cpu_seconds(pid), memory(pid), 0.0, 0
        strangers = Strangers(port, mode, 0 if mode == "nobody" else arguments.strangers)
        end = time.monotonic() + arguments.seconds
        while time.monotonic() < end:
            strangers.stay()
            most, descriptors = max(most, memory(pid)), max(descriptors, descriptors_of(pid))
        used = cpu_seconds(pid) - before
        strangers.end()
        if server.poll() is not None:
            raise SystemExit(f"the server has ended: {folder}.log")
        return used, most - at_first, strangers.connected, descriptors
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(60)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    default = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../build/release/bin")
    parser.add_argument("--bin", default=os.path.normpath(default), help="where muster is")
    parser.add_argument("--strangers", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=15)
    arguments = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    work, usual = tempfile.mkdtemp(prefix="muster-strangers-"), 0.0
    for mode in MODES:
        used, grown, connected, descriptors = measure(arguments, work, mode)
        if mode == "nobody":
            usual = used
            print(f"nobody    {used:.2f} s of CPU time in {arguments.seconds:.0f} s")
            continue
        print(f"{mode:9} {arguments.strangers} strangers, {connected} connections in {arguments.seconds:.0f} s, {descriptors} "
              f"descriptors at most: {used - usual:.2f} s of CPU time, {1e6 * (used - usual) / connected:.0f} µs a connection; "
              f"{grown:.1f} MiB of memory more at most, {1024 * grown / arguments.strangers:.1f} KiB a stranger", flush=True)
    shutil.rmtree(work)
    return 0


if __name__ == "__main__":
    sys.exit(main())
