#!/usr/bin/python3
"""Compares training on several hosts between Muster and PyTorch DDP over gloo. The hosts are network namespaces of this
machine, joined by a bridge, whose links `tc` limits in both directions. Needs root. The runs are interleaved; prints
the median step of each contender, the bytes that the server's host receives per step, and the ratio to Muster of the
same round.

    bench/compare_hosts.py [--bin build/release/bin] [--python /usr/bin/python3] [--hosts 2,4] [--workers 2]
                           [--gbits 1,10] [--what wide,resnet18] [--steps 20] [--rounds 3] [--encrypt]

--what: wide is one layer of 25 million weights (100 MB) with few samples; resnet18 is configs/models/resnet18.txtpb
with 16 images per worker. Contenders: Muster, whose relays send one sum each; the same with one gradient per worker
(cluster.host_sums=false); and PyTorch with DistributedDataParallel over gloo (bench/peers/ddp.py), one process of one
thread for each worker. All Muster runs must end with the same weights. Nothing is encrypted, as in PyTorch, unless
--encrypt says so for Muster.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import peer_python

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Model, image (height, width, channels), samples per worker
WHAT = {
    "wide": ('model { layer { name: "flat" flatten {} } layer { name: "wide" dense { units: 5000 } }\n'
              '        layer { name: "relu" relu {} } layer { name: "classes" dense { units: 10 } }\n'
             '        layer { name: "loss" softmax_cross_entropy {} } }', (50, 100, 1), 4),
    "resnet18": (f'model_file: "{ROOT}/configs/models/resnet18.txtpb"', (32, 32, 3), 16),
}
SERVER = "10.99.0.1"


def sh(command):
    subprocess.run(command, shell=True, check=True)


def make_hosts(count, gbits):
    """Makes namespaces h0, h1, ... with the addresses 10.99.0.1, .2, ..."""
    sh("ip link add br0 type bridge && ip link set br0 up && ip link set lo up")
    limit = f"root tbf rate {gbits}gbit burst {max(64, int(gbits * 512))}kb latency 20ms"
    for host in range(count):
        sh(f"ip netns add h{host} && ip link add v{host} type veth peer name eth0 netns h{host} &&"
           f" ip link set v{host} master br0 up && ip -n h{host} addr add 10.99.0.{host + 1}/24 dev eth0 &&"
           f" ip -n h{host} link set eth0 up && ip -n h{host} link set lo up &&"
           f" tc qdisc add dev v{host} {limit} && tc -n h{host} qdisc add dev eth0 {limit}")


def remove_hosts(count):
    # A namespace disappears some time after its name, and its interfaces with it.
    for host in range(count):
        sh(f"ip link del v{host} && ip netns del h{host}")
    sh("ip link del br0")


def received(host):
    """Returns the bytes that this host has received."""
    text = subprocess.run(["ip", "-n", f"h{host}", "-s", "-j", "link", "show", "eth0"], stdout=subprocess.PIPE, check=True)
    return json.loads(text.stdout)[0]["stats64"]["rx"]["bytes"]


def start(host, command, log):
    return subprocess.Popen(["ip", "netns", "exec", f"h{host}"] + command, stdout=log, stderr=subprocess.STDOUT)


def await_all(processes, log_path, background=()):
    try:
        for process in processes:
            if process.wait(timeout=600) != 0:
                sys.exit(open(log_path).read()[-4000:])
    finally:
        for process in list(processes) + list(background):
            process.kill()
            process.wait()


def write_config(arguments, what, workers, path):
    model, (height, width, channels), batch = WHAT[what]
    with open(path, "w") as out:
        out.write(f"""
run {{ steps: {arguments.steps} global_batch: {batch * workers} slices: {workers} log_every_steps: 1 }}
cluster {{ workers: {workers} encryption: {"CURVE" if arguments.encrypt else "NONE"} }}
data {{
  format: SYNTHETIC
  synthetic {{ height: {height} width: {width} channels: {channels} classes: 10 train_samples: {64 * workers}
               test_samples: 0 }}
}}
{model}
optimizer {{ type: MOMENTUM momentum: 0.9 }}
learning_rate {{ type: CONSTANT base: 0.001 }}
evaluation {{ every_epochs: 0 skip_final: true }}
""")


def muster(arguments, hosts, what, sums, folder):
    """Returns (seconds of the median step, bytes that the server's host receives per step, weights hash)."""
    workers = hosts * arguments.workers
    run = tempfile.mkdtemp(dir=folder)
    config = os.path.join(folder, "config.txtpb")
    write_config(arguments, what, workers, config)
    os.rmdir(run)
    program = os.path.join(arguments.bin, "muster")
    endpoint = f"tcp://{SERVER}:7700"
    log_path = run + ".log"
    resolved = ["--token-file", os.path.join(run, "token")]
    with open(log_path, "w") as log:
        before = received(0)
        server = start(0, [program, "server", config, "--run-dir", run, "--endpoint", endpoint], log)
        while not os.path.exists(os.path.join(run, "token")) or "Listening" not in open(log_path).read():
            if server.poll() is not None:
                sys.exit(open(log_path).read())
            time.sleep(0.05)
        relays, processes = [], [server]
        for rank in range(workers):
            host = rank // arguments.workers
            joins = endpoint
            if sums and host > 0:
                joins = f"local://@relay-{host}"
                if rank % arguments.workers == 0:
                    command = [program + "-worker", "relay", "--listen", joins, "--config", os.path.join(run, "config.txtpb"),
                               "--endpoint", endpoint, "--bind", f"tcp://10.99.0.{host + 1}:7700"]
                    if host & (host - 1):  # see PlanRelay in cli/job/workers_over_ssh.h
                        command += ["--via", f"tcp://10.99.0.{(host & (host - 1)) + 1}:7700"]
                    relays.append(start(host, command + resolved, log))
            processes.append(start(host, [program, "worker", os.path.join(run, "config.txtpb"), "--rank", str(rank),
                                          "--endpoint", joins] + resolved, log))
        await_all(processes, log_path, relays)
        bytes_in = received(0) - before
    with open(os.path.join(run, "metrics.jsonl")) as metrics:
        lines = [json.loads(line) for line in metrics]
    assert lines[-1]["final"] and lines[-1]["reason"] == "completed"
    samples = WHAT[what][2] * workers
    steps = [samples / line["images_per_second"] for line in lines if "images_per_second" in line and not line.get("final")]
    return statistics.median(steps[3:]), bytes_in / arguments.steps, lines[-1]["weights_hash"]


def pytorch(arguments, hosts, what, folder):
    workers = hosts * arguments.workers
    store = tempfile.mkdtemp(dir=folder)
    log_path = store + ".log"
    before = received(0)
    with open(log_path, "w") as log:
        processes = []
        for rank in range(workers):
            processes.append(start(rank // arguments.workers, peer_python.command(arguments, "ddp.py") + [
                "--model", what, "--batch", str(WHAT[what][2]), "--steps", str(arguments.steps), "--rank", str(rank),
                "--processes", str(workers), "--folder", store, "--interface", "eth0"], log))
        await_all(processes, log_path)
    with open(os.path.join(store, "steps.json")) as file:
        steps = json.load(file)
    return statistics.median(steps[3:]), (received(0) - before) / arguments.steps, None


def compare(arguments, hosts, gbits, what):
    contenders = {"Muster": lambda folder: muster(arguments, hosts, what, True, folder)}
    if hosts * arguments.workers > 2:
        contenders["Muster, a gradient per worker"] = lambda folder: muster(arguments, hosts, what, False, folder)
    if arguments.has_peer:
        contenders["PyTorch DDP, gloo"] = lambda folder: pytorch(arguments, hosts, what, folder)
    results = {name: [] for name in contenders}
    make_hosts(hosts, gbits)
    try:
        for _ in range(arguments.rounds):
            for name, run in contenders.items():
                with tempfile.TemporaryDirectory() as folder:
                    results[name].append(run(folder))
    finally:
        remove_hosts(hosts)
    hashes = {result[2] for runs in results.values() for result in runs if result[2]}
    assert len(hashes) == 1, f"different weights: {hashes}"
    print(f"{what}, {hosts} hosts x {arguments.workers} workers, {gbits} Gbit/s")
    for name, runs in results.items():
        ratio = statistics.median(run[0] / own[0] for run, own in zip(runs, results["Muster"]))
        print(f"  {name:30} {1e3 * statistics.median(run[0] for run in runs):8.0f} ms"
              f"  {statistics.median(run[1] for run in runs) / 1e6:7.0f} MB in   {ratio:.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(ROOT, "build/release/bin"))
    parser.add_argument("--hosts", default="2,4")
    parser.add_argument("--workers", type=int, default=2, help="per host")
    parser.add_argument("--gbits", default="1,10")
    parser.add_argument("--what", default="wide,resnet18")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--encrypt", action="store_true")
    peer_python.add_arguments(parser)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if not arguments.inside:
        os.execvp("unshare", ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
                              sys.executable] + sys.argv + ["--inside"])
    sh("mount -t tmpfs tmpfs /run && mkdir /run/netns")
    peer = peer_python.describe(arguments)
    arguments.has_peer = peer is not None
    print(peer or f"no PyTorch in {arguments.python}: skipping that peer", flush=True)
    for what in arguments.what.split(","):
        for gbits in arguments.gbits.split(","):
            for hosts in arguments.hosts.split(","):
                compare(arguments, int(hosts), float(gbits), what)


if __name__ == "__main__":
    main()
