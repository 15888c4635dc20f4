"""Fits y = 2 a - 3 b + 1. usage: numpy_program.py MODE [CONFIG]"""

import sys

import numpy as np

import muster.numpy

MODE = sys.argv[1]
rng = np.random.default_rng(5)
x = rng.normal(size=(200, 2)).astype(np.float32)
y = x @ np.float32([2, -3]) + 1

job = muster.numpy.Job(*sys.argv[2:])
weights = job.variables({"w": np.zeros(2), "b": 0.0}, {"b": {"weight_decay": 0}})


def errors(rows):
    return x[rows] @ weights["w"] + weights["b"] - y[rows]


job.evaluation(len(y), lambda rows: {"loss": (errors(rows)**2).mean()})
for step in job.steps(len(y)):
    for rows in step:
        error = errors(rows)
        gradients = {"w": 2 * x[rows].T @ error / len(rows), "b": 2 * error.mean()}
        if MODE == "missing":
            del gradients["b"]
        if MODE == "shape":
            gradients["b"] = np.zeros(2)
        if MODE == "write":
            weights["b"][...] = 1
        step.gradient((error**2).mean(), gradients, worst=np.abs(error).max())
print(f"y = {weights['w'][0]:.3f} a + {weights['w'][1]:.3f} b + {weights['b']:.3f}")
