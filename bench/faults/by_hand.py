"""Faults in a run whose server and workers are started one by one and restarted as a service manager would do. They
run on separate hosts (network namespaces) if this machine supports that."""
import os
import signal
import socket
import subprocess
import time

from faults.network import Network
from faults.rivals import REFUSED, Rivals
from faults.run import PATIENCE_S, START_S, Lost, Run, Stuck, eventually
from faults.variants import SILENCE_S
from job_processes import processes_of

SERVER_ENDS = (1, 5, 6, 7)  # exit codes after which a service manager restarts the server; < 0: killed
HOSTS = 2


class Relay:
    """The relay of a host, restarted when it ends."""

    def __init__(self, run, host):
        self.run, self.host = run, host
        self.log = f"{run.folder}.relay-{host}.log"
        self.endpoint = f"local://@muster-chaos-relay-{host}"
        self.start()

    def start(self):
        words = [f"{self.run.chaos.bin}/muster-worker", "relay", "--listen", self.endpoint, "--config",
                 f"{self.run.folder}/config.txtpb", "--endpoint", self.run.endpoint, "--token-file", self.run.token]
        self.process = self.run.spawn(self.run.prefix(self.host) + words, self.log)
        self.again_at = None

    def tend(self):
        if self.process.poll() is None:
            return
        if self.again_at is None:
            self.again_at = time.monotonic() + 0.1
        elif time.monotonic() > self.again_at:
            self.start()


class Worker:
    def __init__(self, run, rank):
        self.run, self.rank = run, rank
        # With relays neighbouring ranks share a host, so that their gradients are added.
        self.host = run.started // (2 if run.relays else 1) % HOSTS
        self.log = f"{run.folder}.worker-{run.started}.log"
        run.started += 1
        self.start()

    def start(self):
        seat = ["--join"] if self.rank is None else ["--rank", str(self.rank)]
        words = [f"{self.run.chaos.bin}/muster", "worker", self.run.config, *seat, "--endpoint",
                 self.run.relays[self.host].endpoint if self.run.relays else self.run.endpoint,
                 "--token-file", self.run.token]
        for setting in self.run.worker_settings:
            words += ["--set", setting]
        self.said_before = os.path.getsize(self.log) if os.path.exists(self.log) else 0
        self.process = self.run.spawn(self.run.prefix(self.host) + words, self.log)
        self.again_at = None

    def said(self, text):
        with open(self.log) as file:
            file.seek(self.said_before)
            return text in file.read()

    def joined(self):
        return self.said("joined as rank")

    def asks(self):
        """Returns whether the worker keeps requesting its rank because the rank is taken."""
        return self.said("retrying for up to")

    def alive(self):
        return self.process.poll() is None

    def tend(self):
        code = self.process.poll()
        if code is None or code == 0:
            return
        if self.again_at is None:
            self.again_at = time.monotonic() + (0.5 if code == REFUSED else 0.1)
        elif time.monotonic() > self.again_at:
            self.start()


class HandRun(Run):
    def __init__(self, chaos, seed):
        super().__init__(chaos, seed)
        self.network = Network(HOSTS, seed) if chaos.has_network else None
        self.config = chaos.config(self.plan.variant)
        self.token = self.folder + ".token"
        self.workers, self.started, self.relays = [], 0, []
        self.rivals = Rivals(self)
        self.troubles = 0  # number of faults after which a worker may find no server
        self.again_at = None
        self.worker_settings = [s for s in self.plan.settings if "encryption" in s]

    def prefix(self, host=None):
        if not self.network:
            return []
        return (self.network.server if host is None else self.network.hosts[host]).prefix()

    def begin(self):
        subprocess.run([f"{self.chaos.bin}/muster", "token", self.token], check=True, timeout=START_S,
                       stdout=subprocess.DEVNULL)
        self.endpoint = f"tcp://{Network.SERVER}:7700" if self.network else f"tcp://127.0.0.1:{free_port()}"
        self.start_server()
        if self.network and self.plan.relayed:
            eventually(lambda: os.path.exists(f"{self.folder}/config.txtpb"), START_S, "the server's config")
            self.relays = [Relay(self, host) for host in range(HOSTS)]
        self.workers = [Worker(self, rank) for rank in range(2)]
        if self.relays:
            self.workers += [Worker(self, None) for _ in range(2)]

    def start_server(self):
        words = [f"{self.chaos.bin}/muster", "server", self.config, "--run-dir", self.folder, "--resume",
                 "auto", "--endpoint", self.endpoint, "--token-file", self.token]
        for setting in self.plan.settings:
            words += ["--set", setting]
        size = os.path.getsize(self.log) if os.path.exists(self.log) else 0
        self.first = self.spawn(self.prefix() + words, self.log)
        self.again_at = None
        end = time.monotonic() + START_S
        while os.path.getsize(self.log) == size and self.first.poll() is None:
            if time.monotonic() > end:
                raise Stuck(f"no output of the server within {START_S} s; see {self.log}")
            time.sleep(0.002)

    def over(self):
        """Restarts ended processes; returns whether the run is over."""
        for process in self.relays + self.workers:
            process.tend()
        self.rivals.tend()
        code = self.first.poll()
        if code is None or code >= 0 and code not in SERVER_ENDS:
            return code is not None
        if self.again_at is None:
            self.again_at = time.monotonic() + 0.1
        elif time.monotonic() > self.again_at:
            eventually(lambda: not self.member("muster-server"), 10, "no server outlives `muster server`")
            self.start_server()
        return False

    def another_server(self, old):
        def is_there():
            new = self.member("muster-server")
            return new and new != old
        eventually(lambda: self.over() or is_there(), PATIENCE_S, "another server is started")

    def victim(self, program, rng):
        """Returns a random process, but not a rival that waits for its rank."""
        return rng.choice([pid for pid in self.member(program) if pid not in self.rivals.pids()] or [0]) or None

    def lose_server(self, number, program, rng):
        self.troubles += 1
        old = self.member("muster-server")
        if program == "muster":
            self.first.send_signal(number)
        else:
            self.kill(program, number, rng)
        self.another_server(old)

    def do_server(self, rng):
        self.lose_server(rng.choice([signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT]), "muster-server", rng)

    def do_hang(self, rng):
        self.lose_server(signal.SIGSTOP, "muster-server", rng)

    def do_launcher(self, rng):
        self.lose_server(signal.SIGKILL, "muster", rng)

    def seated(self):
        return [worker for worker in self.workers if worker.alive() and worker.joined()]

    def do_relay(self, rng):
        """Kills the relay of a host, and so loses all its workers."""
        if not self.relays:
            return False
        self.troubles += 1
        rng.choice(self.relays).process.kill()

    def do_twice(self, rng):
        """Starts a second worker with the same rank. Only one of the two may have it, and the second one keeps
        requesting it during the next faults."""
        ranked = [worker for worker in self.seated() if worker.rank is not None]
        if not ranked:
            return False
        return self.rivals.add(Worker(self, rng.choice(ranked).rank))

    def do_resize(self, _rng):
        """Changes the number of workers from 2 to 4, to 1, to 3."""
        for many in (4, 1, 3):
            while len(self.workers) < many and not self.over():
                worker = Worker(self, None)
                self.workers.append(worker)
                eventually(lambda: self.over() or worker.joined(), PATIENCE_S, f"{worker.log}: it joins")
            while len(self.workers) > many and not self.over():
                worker = self.workers[-1]
                eventually(lambda: self.over() or worker not in self.workers or worker.alive() and worker.joined(),
                           PATIENCE_S, f"{worker.log}: it is there")
                if worker not in self.workers:
                    continue  # a second worker with the same rank has replaced it
                self.workers.remove(worker)
                worker.process.send_signal(signal.SIGTERM)
                eventually(lambda: self.over() or not worker.alive(), 20, f"{worker.log}: it leaves")
            time.sleep(0.05)

    def troubled(self, rng):
        return rng.choice(self.network.links)

    def do_partition(self, rng):
        """Cuts links in one or both directions, possibly for longer than deadlines.silence_s."""
        self.troubles += 1
        links = rng.choice([self.network.links, [self.troubled(rng)], [self.troubled(rng)]])
        ways = rng.choice([(True, True), (True, True), (True, False), (False, True)])
        for link in links:
            link.cut = ways
        self.wait(self.chaos.shortened(rng.uniform(0.1, 1.5 * SILENCE_S)))
        for link in links:
            link.heal()

    def do_loss(self, rng):
        self.trouble(rng, "loss", rng.uniform(0.01, 0.3))

    def do_delay(self, rng):
        self.trouble(rng, "delay", rng.uniform(0.001, 0.1))

    def trouble(self, rng, what, how_much):
        self.troubles += 1
        link = self.troubled(rng)
        setattr(link, what, how_much)
        self.wait(self.chaos.shortened(rng.uniform(0.3, 1.5)))
        link.heal()

    def wait(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self.over():
            time.sleep(0.002)

    def finish(self):
        self.await_end()
        if self.first.returncode != 0:
            raise Lost(f"the server exited with code {self.first.returncode}")
        self.rivals.finish()
        for worker in self.workers:
            if not worker.joined():  # it has just been restarted, but there is no server any more
                worker.process.kill()
            try:
                worker.process.wait(20)
            except subprocess.TimeoutExpired:
                raise Stuck(f"the worker did not exit at the end of the run; see {worker.log}") from None
        for relay in self.relays:
            try:
                relay.process.wait(START_S + 10)  # it may just have been restarted, without a server
            except subprocess.TimeoutExpired:
                raise Stuck(f"the relay did not exit at the end of the run; see {relay.log}") from None
        eventually(lambda: not processes_of(self.folder), 10, "all processes end")

    def end(self):
        super().end()
        for one in self.workers + self.relays:
            one.process.kill()
            one.process.wait()
        if self.network:
            self.network.close()


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]
