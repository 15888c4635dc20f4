#!/usr/bin/env python3
"""Kills whole runs and resumes them: is the result that of a run that never stopped?

    bench/resume_check.py [--bin DIR] [--kills N] [--damaged N] [--seed S]

--kills: so many runs, each on one of a dozen configs (every optimizer and schedule, average, clipping,
SKIP_STEP, 16 bits, evaluations of every kind), are killed at random moments: SIGKILL to the launcher,
the server and all workers. Each is resumed with a random number of workers over a random transport, and
killed again, until it ends. The hash of its weights, and every line of metrics.jsonl but for times,
must be those of the undisturbed run. --damaged: so many times the newest checkpoint of a run is
truncated, overwritten, mixed with another one's files, or taken away in part; the run must say so, go
on from the one before, and end with the same hash. Exit code 1 if anything differs.
"""
import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from faults.damage import checkpoints_of, damage
from job_processes import processes_of

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")  # measured on the CPU: a job would take idle GPUs

NETWORK = """
run { epochs: 6 global_batch: 48 slices: 4 log_every_steps: 3 %(run)s }
data { format: SYNTHETIC synthetic { train_samples: 500 test_samples: 90 height: 14 width: 14 }
       preprocess { crop_height: 12 crop_width: 12 flip: true } }
model {
  layer { name: "conv" conv2d { filters: 8 kernel: 3 padding: SAME } }
  layer { name: "norm" batch_norm {} }
  layer { name: "relu" relu {} }
  layer { name: "pool" max_pool { kernel: 3 stride: 2 padding: SAME } }
  layer { name: "hidden" dense { units: 32 } }
  layer { name: "drop" dropout { rate: 0.3 } }
  layer { name: "out" dense { units: 10 } }
  layer { name: "loss" softmax_cross_entropy {} }
}
optimizer { %(optimizer)s }
learning_rate { %(rate)s }
evaluation { batch: 16 %(evaluation)s }
cluster { workers: 2 chunk_bytes: 4096 %(cluster)s }
checkpoint { %(checkpoint)s }
deadlines { start_s: 120 }
"""

VARIANTS = [
    dict(optimizer="type: SGD", rate="base: 0.05"),
    dict(optimizer="type: MOMENTUM weight_decay: 0.001",
         rate="base: 0.01 type: COSINE warmup_samples: 600"),
    dict(optimizer="type: NESTEROV ema_decay: 0.9", rate="base: 0.01 type: POLYNOMIAL power: 2",
         evaluation="use_ema: true every_steps: 7"),
    dict(optimizer="type: ADAM ema_decay: 0.95 clip_norm: 0.5", rate="base: 0.003 type: ONE_CYCLE",
         evaluation="use_ema: true"),
    dict(optimizer="type: ADAMW weight_decay: 0.05 clip_value: 0.1",
         rate="base: 0.003 type: EXPONENTIAL factor: 0.5 interval_samples: 700",
         run="on_nonfinite: SKIP_STEP"),
    dict(optimizer="type: RMSPROP", rate="base: 0.001 type: STEP milestone_samples: [900, 2100]",
         evaluation="every_steps: 5 every_epochs: 0"),
    dict(optimizer="type: RMSPROP momentum: 0.9", rate="base: 0.0005", run="on_nonfinite: SKIP_STEP"),
    dict(optimizer="type: MOMENTUM ema_decay: 0.9", rate="base: 0.01", cluster="wire_dtype: BF16",
         evaluation="use_ema: true"),
    dict(optimizer="type: ADAM", rate="base: 0.003", evaluation="stop_at_accuracy: 0.6"),
    dict(optimizer="type: MOMENTUM", rate="base: 0.005 scaling: LINEAR"),
    dict(optimizer="type: MOMENTUM", rate="base: 0.01", evaluation="skip_final: true"),
]
PARTS = ("run", "optimizer", "rate", "evaluation", "cluster", "checkpoint")
# What a line of metrics.jsonl says of the run, and not of the time that it took.
EXACT = ("step", "samples", "epoch", "learning_rate", "train_loss", "train_accuracy", "skipped_steps",
         "test_accuracy", "test_loss", "test_top5_accuracy", "best_test_accuracy", "best_step", "steps",
         "total_steps", "final", "reason", "stopped_early", "stop_reason", "weights_hash")


def metrics(folder):
    with open(os.path.join(folder, "metrics.jsonl")) as file:
        lines = [json.loads(line) for line in file]
    # Events are of a moment, not of a step.
    return [{key: line.get(key) for key in EXACT} for line in lines if "event" not in line]


class Check:
    def __init__(self, bin_dir, work, rng):
        self.bin, self.work, self.rng = bin_dir, work, rng
        self.expected = {}
        self.failures = []

    def config(self, number):
        path = f"{self.work}/variant-{number}.txtpb"
        if not os.path.exists(path):
            settings = {**dict.fromkeys(PARTS, ""), "checkpoint": "every_steps: 4"}
            settings.update(VARIANTS[number])
            with open(path, "w") as file:
                file.write(NETWORK % settings)
        return path

    def start(self, arguments, log):
        with open(log, "a") as out:
            return subprocess.Popen([f"{self.bin}/muster", *arguments], stdout=out, stderr=out,
                                    stdin=subprocess.DEVNULL)

    def undisturbed(self, number):
        """Its metrics, and how long it takes."""
        if number not in self.expected:
            folder = f"{self.work}/undisturbed-{number}"
            begin = time.monotonic()
            code = self.start(["launch", self.config(number), "--run-dir", folder],
                              folder + ".log").wait(300)
            if code != 0:
                sys.exit(f"the undisturbed run of variant {number} failed: {folder}.log")
            self.expected[number] = metrics(folder), time.monotonic() - begin
        return self.expected[number]

    def compare(self, what, number, folder, code):
        expected, _ = self.undisturbed(number)
        got = metrics(folder) if code == 0 else []
        if got == expected:
            shutil.rmtree(folder)
            return True
        at = next((i for i, (a, b) in enumerate(zip(expected, got)) if a != b), len(got))
        self.failures.append(f"{what}: variant {number}, exit code {code}, {folder}.log: "
                             f"{len(got)} lines of {len(expected)}, the first that differs is {at}")
        return False

    def killed_run(self, run):
        """Returns how often it was killed, and whether all was well."""
        number = run % len(VARIANTS)
        _, seconds = self.undisturbed(number)
        folder = f"{self.work}/killed-{run}"
        kills = 0
        arguments = ["launch", self.config(number), "--run-dir", folder]
        while True:
            process = self.start(arguments, folder + ".log")
            try:
                # Now and then it may end.
                code = process.wait(self.rng.uniform(0.02, 1.2 * seconds) if kills < 8 else 300)
                return kills, self.compare(f"run {run}", number, folder, code)
            except subprocess.TimeoutExpired:
                victims = processes_of(folder)
                self.rng.shuffle(victims)
                for pid in victims:
                    try:
                        os.kill(pid, signal.SIGKILL)
                    except ProcessLookupError:
                        pass
                process.kill()
                process.wait()
                kills += 1
            if checkpoints_of(folder):
                transport = "AUTO" if "wire" in VARIANTS[number].get("cluster", "") else \
                    self.rng.choice(["AUTO", "LOCAL", "IPC", "TCP"])
                arguments = ["launch", "--resume", folder, "--workers", str(self.rng.randint(1, 4)),
                             "--set", f"cluster.transport={transport}"]
            else:  # killed before the first weights were kept
                shutil.rmtree(folder, ignore_errors=True)

    def damaged_run(self, run):
        number = run % len(VARIANTS)
        self.undisturbed(0)
        self.undisturbed(number)
        folder, foreign = f"{self.work}/damaged-{run}", f"{self.work}/undisturbed-0"
        shutil.copytree(f"{self.work}/undisturbed-{number}", folder)
        names = checkpoints_of(folder)
        done = damage(self.rng, f"{folder}/checkpoints/{names[-1]}", f"{folder}/checkpoints/{names[-2]}",
                      f"{foreign}/checkpoints/{checkpoints_of(foreign)[-1]}")
        process = self.start(["launch", "--resume", folder, "--workers", str(self.rng.randint(1, 4))],
                             folder + ".log")
        code = process.wait(300)
        with open(folder + ".log") as log:
            said = f"{names[-1]} is damaged" in log.read()
        if number == 0 and done.split()[0] in ("foreign", "another"):  # the very same file
            said = True
        if not said:
            self.failures.append(f"damaged run {run}: not recognised: {done} ({folder}.log)")
        return self.compare(f"damaged run {run} ({done})", number, folder, code) and said


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    default = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../build/release/bin")
    parser.add_argument("--bin", default=os.path.normpath(default), help="where muster is")
    parser.add_argument("--kills", type=int, default=20, help="runs that are killed")
    parser.add_argument("--damaged", type=int, default=20, help="checkpoints that are damaged")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", action="store_true", help="keep the runs' directories")
    arguments = parser.parse_args()
    work = tempfile.mkdtemp(prefix="muster-resume-")
    check = Check(arguments.bin, work, random.Random(arguments.seed))
    kills = good = 0
    for run in range(arguments.kills):
        times, well = check.killed_run(run)
        kills, good = kills + times, good + well
    if arguments.kills:
        print(f"{good} of {arguments.kills} runs, killed {kills} times, end as if they had not been",
              flush=True)
    recognised = sum(check.damaged_run(run) for run in range(arguments.damaged))
    if arguments.damaged:
        print(f"{recognised} of {arguments.damaged} damaged checkpoints are recognised, and the run ends "
              "as if they had not been")
    for failure in check.failures:
        print(failure)
    if not arguments.keep and not check.failures:
        shutil.rmtree(work)
    return 1 if check.failures else 0


if __name__ == "__main__":
    sys.exit(main())
