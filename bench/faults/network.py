"""Separate hosts for the processes of a job: network namespaces, connected by links that can lose packets, delay them,
or drop all of them, in one or both directions.

A link is a pair of TUN devices whose packets a thread of this program forwards, because many kernels lack netem.
Namespaces and devices have no names and end with this program. Needs root.
"""
import ctypes
import fcntl
import heapq
import os
import random
import select
import struct
import subprocess
import threading
import time

CLONE_NEWNET = 0x40000000
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 1, 0x1000
MTU = 9000
_libc = ctypes.CDLL(None, use_errno=True)


class Unavailable(Exception):
    """This machine or user cannot create such a network."""


def _in_a_thread(function):
    """Runs `function` in its own thread, because changing the network namespace affects the calling thread."""
    result = []

    def body():
        try:
            result.append(function())
        except OSError as error:
            result.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    if isinstance(result[0], OSError):
        raise Unavailable(str(result[0]))
    return result[0]


def _call(name, *arguments):
    if getattr(_libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


class Host:
    """A network namespace, which exists as long as the object."""

    def __init__(self):
        def make():
            _call("unshare", CLONE_NEWNET)
            return os.open("/proc/thread-self/ns/net", os.O_RDONLY)

        self.fd = _in_a_thread(make)
        self.ip("link", "set", "lo", "up")

    def close(self):
        os.close(self.fd)

    def prefix(self):
        """The command prefix that runs a command on this host."""
        return ["nsenter", f"--net=/proc/{os.getpid()}/fd/{self.fd}"]

    def ip(self, *arguments):
        try:
            done = subprocess.run([*self.prefix(), "ip", *arguments], stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, timeout=20)
        except FileNotFoundError as error:
            raise Unavailable(str(error)) from error
        if done.returncode != 0:
            raise Unavailable(f"ip {' '.join(arguments)}: {done.stdout.strip()}")

    def tun(self, name, address, other):
        """Creates a device with this address and peer address; returns the descriptor for its packets."""
        def make():
            _call("setns", self.fd, CLONE_NEWNET)
            fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
            fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TUN | IFF_NO_PI))
            return fd

        fd = _in_a_thread(make)
        self.ip("addr", "add", address, "peer", other, "dev", name)
        self.ip("link", "set", name, "mtu", str(MTU), "up")
        return fd


class Link(threading.Thread):
    """A link between two hosts. `cut`: directions that drop everything, from the first host and from the second;
    `loss`: the share of lost packets; `delay`: the delay of each packet in seconds."""

    def __init__(self, first, second, addresses, name, seed):
        super().__init__(daemon=True)
        self.fds = (first.tun(name, *addresses), second.tun("net0", *reversed(addresses)))
        self.random = random.Random(seed)
        self.heal()
        self.waiting, self.count = [], 0
        self.wake = os.pipe()
        self.start()

    def heal(self):
        self.cut, self.loss, self.delay = (False, False), 0.0, 0.0

    def close(self):
        os.write(self.wake[1], b"x")
        self.join()
        for fd in (*self.fds, *self.wake):
            os.close(fd)

    def run(self):
        poll = select.poll()
        for fd in (*self.fds, self.wake[0]):
            poll.register(fd, select.POLLIN)
        while True:
            wait = max(0, self.waiting[0][0] - time.monotonic()) * 1000 if self.waiting else 1000
            for fd, _ in poll.poll(wait):
                if fd == self.wake[0]:
                    return
                self.take(self.fds.index(fd))
            while self.waiting and self.waiting[0][0] <= time.monotonic():
                _, _, fd, packet = heapq.heappop(self.waiting)
                self.put(fd, packet)

    def take(self, side):
        while True:
            try:
                packet = os.read(self.fds[side], 65536)
            except OSError:
                return
            if self.cut[side] or (self.loss and self.random.random() < self.loss):
                continue
            if self.delay:
                self.count += 1
                until = time.monotonic() + self.delay
                heapq.heappush(self.waiting, (until, self.count, self.fds[1 - side], packet))
            else:
                self.put(self.fds[1 - side], packet)

    @staticmethod
    def put(fd, packet):
        try:
            os.write(fd, packet)
        except OSError:
            pass  # devices with full queues also drop packets


class Network:
    """A server's host and other hosts, each connected to it by its own link."""

    SERVER = "10.77.9.1"

    def __init__(self, others, seed):
        self.server, self.hosts, self.links = Host(), [], []
        self.server.ip("addr", "add", f"{self.SERVER}/32", "dev", "lo")
        for number in range(1, others + 1):
            host = Host()
            self.hosts.append(host)
            ends = (f"10.77.{number}.1", f"10.77.{number}.2")
            self.links.append(Link(self.server, host, ends, f"host{number}", seed * 100 + number))
            host.ip("route", "add", self.SERVER, "via", ends[0], "dev", "net0")

    def close(self):
        for one in (*self.links, self.server, *self.hosts):
            one.close()


def why_not():
    """Returns why this machine cannot create such a network, or ""."""
    try:
        Network(1, 0).close()
    except Unavailable as error:
        return str(error)
    return ""
