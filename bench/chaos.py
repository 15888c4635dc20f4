#!/usr/bin/env python3
"""Trains under faults and checks that the result equals that of an undisturbed run.

    bench/chaos.py [--bin DIR] [--runs N] [--faults N | --each] [--kinds KIND,KIND] [--seed S]

Each run trains a small network (about 4,000 parameters, 1,650 steps of about a millisecond) with one of the configs in
faults/variants.py: every optimizer, the moving average, clipping, SKIP_STEP, 16 bits on the wire. The run's
seed determines which fault happens at which step. Runs with odd seeds use `muster launch` with a random transport:

    server     SIGKILL, SIGSEGV or SIGABRT to the server: the launcher starts another one
    hang       permanent SIGSTOP to the server: it is replaced after deadlines.silence_s (2 s here)
    launcher   SIGKILL to the launcher: no process may survive; --resume continues with another number of workers
    stop       SIGSTOP to the server (up to 1.5 s) or a worker (up to 3 s), then SIGCONT
    worker     SIGKILL to a worker: it is replaced (cluster.on_lost_worker)
    workers    SIGKILL to all workers
    slow       a worker gets 20 % of a core for a while
    disk       ENOSPC or EIO for some consecutive calls of the server or the launcher that open, write, sync or rename
               files of the run; a run that ends because of this must say so, and continues with --resume
    damage     the newest checkpoint is damaged before the launcher or --resume reads it: the damage must be reported
    clock      the wall clock jumps to within an hour of the correct time

Runs with even seeds are started by hand with `muster server --resume auto` and `muster worker`, and restarted as a
service manager would do. They use TCP, encrypted or not, and network namespaces if permitted. In 70 % of them four
workers reach the server through a relay on each of two hosts:

    server, hang, launcher, stop, worker, slow  as above; a worker may also be a relay
    relay      SIGKILL to the relay of a host
    twice      a second worker with a taken rank is started and keeps requesting the rank during the next faults: it
               gets the rank only if the first worker is lost; otherwise it is refused or notified that the run is over
    resize     from 2 workers to 4, to 1, to 3: workers join, and leave on SIGTERM
    partition  one link or all links drop everything, in one or both directions, for up to 1.5 x silence_s
    loss       a link loses up to 30 % of its packets for a while
    delay      a link delays each packet by up to 0.1 s for a while

At the end, the exit code, the hash of the weights and every line of metrics.jsonl except times (and therefore all
evaluations) must equal those of the undisturbed run. TensorBoard's files must contain each step once. No process,
socket or shared memory may remain, and faults must not increase the launcher's number of descriptors.
A failed run prints its seed: repeat it with `--seed SEED --runs 1` and the same --faults and --kinds.
"""
import argparse
import collections
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile

from faults.by_hand import HandRun
from faults.damage import checkpoints_of
from faults.launched import LaunchedRun
from faults.network import why_not
from faults.run import Lost, Stuck
from faults.schedule import KINDS, NETWORK, schedule
from faults.tensorboard_steps import shown
from faults.variants import STEPS, VARIANTS, config_of, metrics

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")  # CPU only: otherwise a job would use idle GPUs


class Chaos:
    """The state shared by all runs."""

    def __init__(self, arguments, work, has_network):
        self.bin, self.work, self.wanted, self.has_network = arguments.bin, work, arguments, has_network
        self.preload = arguments.preload
        self.expected, self.recovery = {}, []

    def shortened(self, seconds):
        """Shortens a duration with --each."""
        return seconds / 3 if self.wanted.each else seconds

    def config(self, variant):
        path = f"{self.work}/variant-{variant}.txtpb"
        if not os.path.exists(path):
            with open(path, "w") as file:
                file.write(config_of(variant))
        return path

    def undisturbed(self, variant):
        if variant not in self.expected:
            folder = f"{self.work}/undisturbed-{variant}"
            with open(folder + ".log", "w") as out:
                code = subprocess.call([f"{self.bin}/muster", "launch", self.config(variant), "--run-dir",
                                        folder], stdout=out, stderr=out, timeout=300)
            if code != 0:
                sys.exit(f"the undisturbed run of variant {variant} failed: {folder}.log")
            self.expected[variant] = metrics(folder), shown(folder)
            shutil.copytree(f"{folder}/checkpoints/{checkpoints_of(folder)[-1]}",
                            f"{self.work}/foreign-{variant}")
            shutil.rmtree(folder)
        return self.expected[variant]

    def foreign(self, variant):
        """Returns a checkpoint of another run with the same config."""
        self.undisturbed(variant)
        return f"{self.work}/foreign-{variant}"


def kinds_of(text):
    kinds = text.split(",")
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0]}: expected some of {', '.join(KINDS)}")
    return kinds


def arguments_of():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    default = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../build/release/bin")
    parser.add_argument("--bin", default=os.path.normpath(default), help="directory of the muster programs")
    parser.add_argument("--preload", metavar="FILE", help="libfaults_preloaded.so; default: in --bin")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--faults", type=int, default=5, help="faults per run")
    parser.add_argument("--each", action="store_true", help="one shortened fault of each kind per run")
    parser.add_argument("--kinds", type=kinds_of, default=list(KINDS), help="default: " + ",".join(KINDS))
    parser.add_argument("--seed", type=int, default=1, help="seed of the first run; later runs count up")
    parser.add_argument("--keep", action="store_true", help="keep the runs' directories")
    return parser.parse_args()


def leave_out(arguments, kinds, why):
    """Removes kinds of faults and reports this."""
    lacking = [kind for kind in arguments.kinds if kind in kinds]
    if lacking:
        arguments.kinds = [kind for kind in arguments.kinds if kind not in lacking]
        print(f"{len(lacking)} kinds of faults are skipped ({', '.join(lacking)}): {why}", flush=True)
    if not arguments.kinds:
        sys.exit("no kind of fault is left")


def one(chaos, seed, total):
    """Returns whether the run ended correctly."""
    plan = schedule(seed, chaos.wanted, STEPS, VARIANTS)
    run = (HandRun if plan.by_hand else LaunchedRun)(chaos, seed)
    try:
        run.train()
        run.check()
        if not chaos.wanted.keep:
            shutil.rmtree(run.folder)
        return True
    except Lost as lost:
        how = "by hand" if plan.by_hand else f"over {plan.transport}"
        print(f"seed {seed}: variant {plan.variant} {how}: {lost}; {run.log}\n"
              f"    {[(f.kind, f.step) for f in plan.faults]}", flush=True)
        if isinstance(lost, Stuck):
            print(run.diagnosis(), flush=True)
        return False
    finally:
        run.end()
        total.update(run.done)


def main():
    arguments = arguments_of()
    if arguments.preload is None:
        arguments.preload = f"{arguments.bin}/libfaults_preloaded.so"
    if not os.path.exists(arguments.preload):
        leave_out(arguments, ("disk", "clock"), f"{arguments.preload} does not exist")
        arguments.preload = None
    why = why_not()
    if why:
        leave_out(arguments, NETWORK, f"network namespaces with TUN devices are unavailable: {why}")
    work = tempfile.mkdtemp(prefix="muster-chaos-")
    chaos, total = Chaos(arguments, work, not why), collections.Counter()
    seeds = range(arguments.seed, arguments.seed + arguments.runs)
    runs, failures = 0, []
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        for seed in seeds:
            if not one(chaos, seed, total):
                failures.append(seed)
            runs += 1
    except KeyboardInterrupt:
        print(f"stopped at seed {seed}")
    # `total` also counts reactions to faults, which are not faults themselves.
    faults = {kind: total[kind] for kind in KINDS if total[kind]}
    print(f"{runs - len(failures)} of {runs} runs gave the undisturbed result, after "
          f"{sum(faults.values())} faults ({', '.join(f'{n} {kind}' for kind, n in faults.items())})")
    besides = [f"{n} {what}" for what, n in total.items() if what not in KINDS]
    if besides:
        print("    including: " + ", ".join(besides))
    if chaos.recovery:
        print(f"from losing a server to the next server's first step: median "
              f"{statistics.median(chaos.recovery):.2f} s, at most {max(chaos.recovery):.2f} s")
    if failures:
        print(f"failed seeds: {failures}")
    elif not arguments.keep:
        shutil.rmtree(work)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
