"""Fits y = 2 a - 3 b + 1. usage: numpy_program.py MODE [CONFIG]"""

import json
import os
import pathlib
import signal
import sys
import time

import numpy as np

import muster.numpy
from muster._client import ABSENT, COMPUTE, VALUE

MODE = sys.argv[1]
rng = np.random.default_rng(5)
x = rng.normal(size=(200, 2)).astype(np.float32)
y = x @ np.float32([2, -3]) + 1

SAYS = {"says": 20, "slow says": 20, "says more": 30}
said = {"batch_size": np.int64(40), "epochs": SAYS[MODE]} if MODE in SAYS else {}
job = muster.numpy.Job(*sys.argv[2:], **said)
weights = job.variables({"w": np.zeros(2), "b": 0.0}, {"b": {"weight_decay": 0}})
assert os.environ["MUSTER_SEED"] == "1"
if MODE == "arithmetic":
    job._client.set_arithmetic(os.environ.get("MUSTER_TEST_ARITHMETIC") or "CPU, version " + os.environ["MUSTER_RANK"])
samples = len(y)
if MODE.startswith("plan"):
    samples = 190  # 4 batches of 40 and a smaller one
    job._client.set_drop_last(True)
    job._client.set_in_order(MODE != "plans" or os.environ["MUSTER_RANK"] == "0")


def errors(rows):
    return x[rows] @ weights["w"] + weights["b"] - y[rows]


def reaches(file):
    deadline = time.monotonic() + 60
    while not file.exists() and time.monotonic() < deadline:
        time.sleep(0.01)


def die_in_an_evaluation(step=None):
    """Rank 1, while rank 0 computes a slice of the same step."""
    folder = pathlib.Path(os.environ["MUSTER_TEST_RUN"])
    training, died = folder / "training", folder / "died"
    if job.rank == 0 and step == 25 and not training.exists():
        training.touch()
        reaches(died)
        time.sleep(0.5)  # the server notices
    if job.rank == 1 and step is None and not died.exists():
        reaches(training)
        died.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def once(key, step, compute):
    """A value that one process computes for all. The first of them to compute acc:2 is killed."""
    while (answer := job._client.ask(key, step, True))[0] == COMPUTE:
        print(f"from {job._client.first_step}: computes {key}", flush=True)
        died = pathlib.Path(os.environ["MUSTER_TEST_RUN"], "died")
        if key == "acc:2" and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        job._client.tell(key, step, compute())
    assert answer[0] == VALUE
    print(f"{key} = {answer[1].decode()}", flush=True)


def end_of_epoch(step):
    done = step.number + 1
    if MODE == "once":
        once(f"acc:{step.epoch}", done, lambda: b"%d" % os.getpid())
        kind, means = job._client.ask(f"epoch:{done}", done, False)
        assert kind == VALUE and set(json.loads(means)) == {"loss", "worst"}, means
        print(f"epoch:{done} = {means.decode()}")
        if job._client.first_step > 0:
            assert job._client.ask("never", 1, True)[0] == ABSENT
    if MODE in ("stops", "stops and exits") and done == 25:
        job._client.tell("stop", done, b"enough")
        assert job._client.ask("stop", done, False) == (VALUE, b"enough")
        if MODE == "stops and exits":
            os._exit(0)


def evaluate(rows):
    if MODE == "dies":
        die_in_an_evaluation()
    return {"loss": (errors(rows)**2).mean()}


job.evaluation(len(y), evaluate)
next_weights = None
for seen, step in enumerate(job.steps(samples)):
    assert step.number == seen
    for rows in step:
        assert next_weights is None or (weights["w"] == next_weights).all()
        next_weights = None
        if MODE == "plan":
            first = step.number % job._client.steps_per_epoch * 40
            assert (np.diff(rows) == 1).all() and first <= rows[0] <= rows[-1] < first + 40
        if MODE == "arithmetic":
            job._client.tell("bits:scatter", step.number, b"process %d" % os.getpid())
        if MODE == "slow says":
            time.sleep(0.02)
        if MODE == "dies":
            die_in_an_evaluation(step.number)
        if MODE == "interrupted" and job.rank == 1 and step.number == 0:
            os.kill(os.getpid(), signal.SIGINT)
            MODE = ""
            print("rank 1 finishes its step")
        if MODE == "late" and job.rank == 1 and step.number == job.total_steps - 1:
            reaches(pathlib.Path(os.environ["MUSTER_TEST_RUN"], "model.safetensors"))
        error = errors(rows)
        gradients = {"w": 2 * x[rows].T @ error / len(rows), "b": 2 * error.mean()}
        if MODE == "missing":
            del gradients["b"]
        if MODE == "shape":
            gradients["b"] = np.zeros(2)
        if MODE == "stops" and step.number >= 25:
            gradients = {"w": np.full(2, np.nan), "b": 0.0}
        if MODE == "write":
            weights["b"][...] = 1
        step.gradient((error**2).mean(), gradients, worst=np.abs(error).max())
    if step.ends_epoch:
        end_of_epoch(step)
    if MODE == "alone":  # other processes could take over its work if it is slow
        next_weights = weights["w"].copy()
if MODE == "late":
    print(f"rank {job.rank} saw {seen + 1} steps")
print(f"y = {weights['w'][0]:.3f} a + {weights['w'][1]:.3f} b + {weights['b']:.3f}")
