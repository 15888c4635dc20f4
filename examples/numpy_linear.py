"""Fits y = 2 a - 3 b + 1 with NumPy.

    muster launch examples/numpy_linear.txtpb --workers 2 -- python3 examples/numpy_linear.py
"""

import numpy as np

import muster.numpy

rng = np.random.default_rng(seed=1)
x = rng.normal(size=(1000, 2)).astype(np.float32)
y = x @ np.float32([2, -3]) + 1

job = muster.numpy.Job()
weights = job.variables({"w": np.zeros(2), "b": 0.0})


def error(rows):
    return x[rows] @ weights["w"] + weights["b"] - y[rows]


job.evaluation(len(y), lambda rows: (error(rows)**2).mean())
for step in job.steps(len(y)):
    for rows in step:
        e = error(rows)
        step.gradient((e**2).mean(), {"w": 2 * x[rows].T @ e / len(rows), "b": 2 * e.mean()})

w, b = weights["w"], weights["b"]
print(f"y = {w[0]:.3f} a + {w[1]:.3f} b + {b:.3f}")
