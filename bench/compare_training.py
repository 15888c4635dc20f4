#!/usr/bin/python3
"""Compares Muster's images per second with those of PyTorch DDP, of TensorFlow, and of Muster on one core. The runs are
interleaved; prints medians, and the ratio to the fastest peer of the same round.

    bench/compare_training.py [--bin build/release/bin] [--what lrn,nolrn,scaling,...] [--rounds 3]
                              [--seconds 15] [--batch N] [--slices N] [--quiet-check]
                              [--python /usr/bin/python3] [--tensorflow PYTHON] [--bf16] [--compile]

--what, any of:
    lrn           the tutorial network of configs/cifar10.txtpb with its augmentation
    nolrn         the same without LRN
    scaling       the tutorial network with 2 workers, against twice the rate of one worker alone on core 0
    resnet20, resnet18, multigpu_cnn, mobilenet_v2
                  the models of configs/models on random images (multigpu_cnn: 28x28x1 and Adam, the
                  others momentum)
Each round runs every contender once, in turn: Muster with 2 workers of 1 thread each, PyTorch with 2
processes of 1 thread each (bench/peers/ddp.py), and with --tensorflow one process of TensorFlow with all
cores, and one with MirroredStrategy over logical CPUs (bench/peers/tensorflow_train.py). All have the same
network and batch; the peers have their data in memory. A Muster run counts only if it completed and
trained: its loss must fall or, on random images, stay finite and change.

--python selects the Python with PyTorch, for example the newest in a virtual environment:
`python3 -m venv DIR && DIR/bin/pip install torch numpy`, then --python DIR/bin/python; --tensorflow one
with tensorflow-cpu. --bf16 runs Muster with worker.precision BF16, and the peers' forward pass and loss
under torch.autocast, or with mixed_bfloat16; --compile runs PyTorch's network through torch.compile. (Keras compiles by itself.)
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

# what: model file, image (height, width, channels), classes, batch per worker, optimizer
MADE_UP = {
    "resnet20": ("resnet20", (32, 32, 3), 10, 128, "type: MOMENTUM momentum: 0.9"),
    "resnet18": ("resnet18", (32, 32, 3), 10, 64, "type: MOMENTUM momentum: 0.9"),
    "multigpu_cnn": ("multigpu_cnn", (28, 28, 1), 10, 128, "type: ADAM"),
    "mobilenet_v2": ("mobilenet_v2", (224, 224, 3), 1000, 8, "type: MOMENTUM momentum: 0.9"),
}
TITLES = {"lrn": "tutorial network", "nolrn": "the same without LRN", "scaling": "2 workers x 1 thread",
          "resnet20": "ResNet-20", "resnet18": "ResNet-18", "multigpu_cnn": "multigpu_cnn, Adam",
          "mobilenet_v2": "MobileNetV2"}
TUTORIAL_BATCH = 128
LOGGED = 10  # number of intervals of metrics.jsonl per run


def model_without_lrn(folder):
    """Writes the tutorial's network without its two LRN layers."""
    path = os.path.join(folder, "no_lrn.txtpb")
    with open(os.path.join(ROOT, "configs/models/cifar10_tutorial.txtpb")) as model:
        lines = [line for line in model if " lrn {" not in line]
    with open(path, "w") as out:
        out.writelines(lines)
    return path


def made_up_config(what, folder):
    """Writes a config that trains one of configs/models on random images."""
    model, (height, width, channels), classes, batch, optimizer = MADE_UP[what]
    path = os.path.join(folder, what + ".txtpb")
    with open(path, "w") as out:
        out.write(f"""
run {{ epochs: 1000000 batch_per_worker: {batch} }}
cluster {{ workers: 2 }}
data {{
  format: SYNTHETIC
  synthetic {{
    height: {height} width: {width} channels: {channels} classes: {classes}
    train_samples: {32 * batch} test_samples: 0
  }}
  preprocess {{ standardize: true }}
}}
model_file: "{ROOT}/configs/models/{model}.txtpb"
optimizer {{ {optimizer} }}
learning_rate {{ type: CONSTANT base: 0.001 }}
""")
    return path


def launch(arguments, folder, what, workers, steps, settings=(), pin=None):
    """Runs Muster once. Returns (images per second of each logging interval, losses, the summary)."""
    run = tempfile.mkdtemp(dir=folder)
    os.rmdir(run)
    tutorial = what not in MADE_UP
    config = os.path.join(ROOT, "configs/cifar10.txtpb") if tutorial else made_up_config(what, folder)
    command = [os.path.join(arguments.bin, "muster"), "launch", config, "--workers", str(workers), "--run-dir", run,
               "--steps", str(steps), "--set", f"run.batch_per_worker={batch_of(arguments, what)}",
               "--set", "worker.threads=1", "--set", "evaluation.skip_final=true",
               "--set", "evaluation.every_epochs=0", "--set", f"run.log_every_steps={max(1, steps // LOGGED)}"]
    if tutorial:
        # A lower rate than the config's, which suits a long training, so that the loss falls within
        # a few steps.
        command += ["--data", os.path.join(folder, "data"), "--set", "learning_rate.base=0.02"]
    for setting in settings:
        command += ["--set", setting]
    if not any(setting.startswith(("worker.backend", "worker.devices")) for setting in settings):
        command += ["--devices", "cpu"]
    if pin is not None:
        command = ["taskset", "-c", pin] + command
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        sys.exit(done.stdout)
    with open(os.path.join(run, "metrics.jsonl")) as metrics:
        lines = [json.loads(line) for line in metrics]
    assert lines[-1]["final"] and lines[-1]["reason"] == "completed"
    logged = [line for line in lines if not line.get("final")]
    return [line["images_per_second"] for line in logged], [line["train_loss"] for line in logged], lines[-1]


def batch_of(arguments, what):
    return arguments.batch or (MADE_UP[what][3] if what in MADE_UP else TUTORIAL_BATCH)


class Muster:
    """One contender. The first run determines how many steps fit into --seconds."""

    def __init__(self, arguments, folder, what, workers=2, settings=(), pin=None):
        self.how = (arguments, folder, what, workers)
        self.options = {"settings": settings, "pin": pin}
        self.seconds = arguments.seconds
        self.images_per_step = workers * batch_of(arguments, what)
        self.steps = None
        self.summary = None

    def run(self):
        if self.steps is None:
            rates, _, _ = launch(*self.how, 6, **self.options)
            self.steps = max(2 * LOGGED, int(self.seconds * statistics.median(rates[1:]) / self.images_per_step))
        rates, losses, self.summary = launch(*self.how, self.steps, **self.options)
        if self.how[2] in MADE_UP:
            assert all(loss == loss and loss < 1e3 for loss in losses) and len(set(losses)) > 1, f"did not train: {losses}"
        else:
            assert min(losses[len(losses) // 2:]) < losses[0], f"the loss did not fall: {losses}"
        # Exclude the first interval, which has cold caches, just as PyTorch's warm-up is excluded.
        return statistics.median(rates[1:])


class Peer:
    """A program of bench/peers that prints its images per second."""

    def __init__(self, arguments, command, what, batch):
        model = {"lrn": "tutorial", "nolrn": "tutorial_no_lrn"}.get(what, what)
        repeat = 3
        self.timeout = 1800 if arguments.compile else 600
        self.command = command + ["--model", model, "--batch", str(batch), "--seconds",
                                  str(arguments.seconds / repeat), "--repeat", str(repeat)]

    def run(self):
        done = subprocess.run(self.command, check=True, stdout=subprocess.PIPE, text=True, timeout=self.timeout)
        return json.loads(done.stdout.splitlines()[-1])["images_per_second"]


class Twice:
    """Twice the rate of one worker, which is ideal scaling to two workers."""

    def __init__(self, one):
        self.one = one

    def run(self):
        return 2 * self.one.run()


def contenders(arguments, folder, what):
    """Returns the contenders by name, Muster first."""
    settings = [f"model_file={model_without_lrn(folder)}"] if what == "nolrn" else []
    settings += [f"run.slices={arguments.slices}"] if arguments.slices else []
    settings += ["worker.precision=BF16", "worker.soft_placement=false"] if arguments.bf16 else []
    if what == "scaling":
        # One worker and its server share core 0, so that exactly one core is used.
        one = Muster(arguments, folder, what, workers=1, settings=settings, pin="0")
        return {"Muster": Muster(arguments, folder, what, settings=settings), "2 x one worker": Twice(one)}
    batch = batch_of(arguments, what)
    found = {"Muster": Muster(arguments, folder, what, settings=settings),
             "PyTorch DDP": Peer(arguments, peer_python.command(arguments, "ddp.py"), what, batch)}
    if arguments.tensorflow:
        command = peer_python.tensorflow_command(arguments)
        found["TensorFlow"] = Peer(arguments, command, what, 2 * batch)
        found["MirroredStrategy"] = Peer(arguments, command + ["--mirrored"], what, 2 * batch)
    return found


def report(what, rates, batch):
    ours, peers = rates["Muster"], {name: got for name, got in rates.items() if name != "Muster"}
    ratios = [own / max(got) for own, got in zip(ours, zip(*peers.values()))]
    medians = ", ".join(f"{name} {statistics.median(got):,.0f}" for name, got in peers.items())
    rounds = "; ".join(f"{name} " + " ".join(f"{rate:,.0f}" for rate in got) for name, got in rates.items())
    print(f"{TITLES[what]}, batch {batch} per worker: {statistics.median(ours):,.0f}; {medians}; ratio to the "
          f"fastest of each round {statistics.median(ratios):.2f} [{min(ratios):.2f} .. {max(ratios):.2f}]   (rounds: {rounds})", flush=True)


def where_a_step_goes(what, summary):
    times = ", ".join(f"{key} {summary[key + '_ms']:.1f} ms" for key in ("input", "compute", "push", "wait", "pull"))
    # Shares of the last run. They are separate from the times, because the server measures only
    # shares (ps/record/step_balance.h).
    shares = f"overhead {100 * summary['overhead_share']:.1f} %, imbalance between ranks {100 * summary['imbalance_share']:.1f} %"
    print(f"{TITLES[what]}, where a step goes: {times}; {shares}")


def cpu_ticks():
    """Returns (idle, all) ticks from /proc/stat, summed over all cores."""
    with open("/proc/stat") as file:
        ticks = [int(field) for field in file.readline().split()[1:9]]
    return ticks[3] + ticks[4], sum(ticks)


def warn_if_busy(label, seconds=2, allowed=0.05):
    """Warns about other work on the machine, which would distort the figures of the two sides unequally. Call while no
    contender runs."""
    idle, total = cpu_ticks()
    time.sleep(seconds)
    idle_after, total_after = cpu_ticks()
    busy = 1 - (idle_after - idle) / max(1, total_after - total)
    if busy > allowed:
        print(f"warning: before {label}, the machine is {100 * busy:.0f} % busy with other work (load "
              f"{os.getloadavg()[0]:.1f}): the figures are unreliable", file=sys.stderr, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default=os.path.join(ROOT, "build/release/bin"))
    parser.add_argument("--batch", type=int, help="per worker; default: each model's own")
    parser.add_argument("--slices", type=int, help="run.slices of Muster; default: 8, which fit 1 to 8 workers")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=15, help="duration of each contender in each round")
    parser.add_argument("--what", default="lrn,nolrn,scaling")
    peer_python.add_arguments(parser)
    parser.add_argument("--tensorflow", metavar="PYTHON", help="a Python with TensorFlow; default: no TensorFlow")
    parser.add_argument("--quiet-check", action="store_true", help="check for other work on the machine before each round")
    arguments = parser.parse_args()
    what = arguments.what.split(",")
    unknown = [one for one in what if one not in TITLES]
    if unknown:
        parser.error(f"--what: unknown {', '.join(unknown)}; expected any of {', '.join(TITLES)}")
    if what != ["scaling"]:
        peer = peer_python.describe(arguments)
        if peer is None:
            sys.exit(f"--python {arguments.python}: cannot import torch; install it (Debian: apt-get install "
                     "python3-torch) or select the Python of a virtual environment with PyTorch")
        print(peer, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        if any(one not in MADE_UP for one in what):
            subprocess.run([os.path.join(arguments.bin, "muster"), "data", "synth", os.path.join(folder, "data")],
                           check=True, stdout=subprocess.DEVNULL)
        all_contenders = {one: contenders(arguments, folder, one) for one in what}
        got = {one: {name: [] for name in all_contenders[one]} for one in what}
        for number in range(arguments.rounds):
            label = f"round {number + 1} of {arguments.rounds}"
            if arguments.quiet_check:
                warn_if_busy(label)
            print(f"{label} ...", file=sys.stderr, flush=True)
            for one, found in all_contenders.items():
                for name, contender in found.items():
                    got[one][name].append(contender.run())
        print(f"images/s, medians of {arguments.rounds} interleaved rounds")
        for one in what:
            report(one, got[one], batch_of(arguments, one))
        for one in what:
            where_a_step_goes(one, all_contenders[one]["Muster"].summary)


if __name__ == "__main__":
    main()
