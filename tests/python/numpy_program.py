"""Fits y = 2 a - 3 b + 1. usage: numpy_program.py MODE [CONFIG]"""

import os
import pathlib
import signal
import sys
import time

import numpy as np

import muster.numpy

MODE = sys.argv[1]
rng = np.random.default_rng(5)
x = rng.normal(size=(200, 2)).astype(np.float32)
y = x @ np.float32([2, -3]) + 1

SAYS = {"says": 20, "slow says": 20, "says more": 30}
said = {"batch_size": np.int64(40), "epochs": SAYS[MODE]} if MODE in SAYS else {}
job = muster.numpy.Job(*sys.argv[2:], **said)
weights = job.variables({"w": np.zeros(2), "b": 0.0}, {"b": {"weight_decay": 0}})


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


def evaluate(rows):
    if MODE == "dies":
        die_in_an_evaluation()
    return {"loss": (errors(rows)**2).mean()}


job.evaluation(len(y), evaluate)
next_weights = None
for seen, step in enumerate(job.steps(len(y))):
    assert step.number == seen
    for rows in step:
        assert next_weights is None or (weights["w"] == next_weights).all()
        next_weights = None
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
        if MODE == "write":
            weights["b"][...] = 1
        step.gradient((error**2).mean(), gradients, worst=np.abs(error).max())
    if MODE == "alone":  # other processes could take over its work if it is slow
        next_weights = weights["w"].copy()
if MODE == "late":
    print(f"rank {job.rank} saw {seen + 1} steps")
print(f"y = {weights['w'][0]:.3f} a + {weights['w'][1]:.3f} b + {weights['b']:.3f}")
