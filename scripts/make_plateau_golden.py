#!/usr/bin/env python3
"""Writes tests/ps/golden/plateaus.txt: the rates of PyTorch's ReduceLROnPlateau.

    python3 scripts/make_plateau_golden.py > tests/ps/golden/plateaus.txt

Muster counts all evaluations without improvement, PyTorch those beyond the first `patience`, so
plateau_patience is PyTorch's patience + 1. The lines of each case:

    case SETTINGS (protobuf text of muster.config.LearningRate)
    ACCURACY RATE            of each evaluation: its result, and the rate after it
"""
import random

import torch

CASES = [  # base, factor, PyTorch's patience, min_delta, end
    (0.5, 0.1, 0, 0.0, 0.0),
    (0.1, 0.1, 2, 0.0, 0.0),
    (0.1, 0.5, 3, 0.01, 0.004),
    (1.0, 0.2, 1, 0.002, 0.03),
]
EVALUATIONS = 60


def accuracies(case):
    """Multiples of 1/1000 that rise, stand still and fall."""
    draw = random.Random(case)
    value, all_values = 100, []
    for i in range(EVALUATIONS):
        value += draw.choice([-8, -2, 0, 0, 1, 3, 12]) if i % 20 < 12 else draw.choice([-5, 0, 2])
        all_values.append(max(value, 0) / 1000)
    return all_values


def main():
    print(f"# torch {torch.__version__.split('+')[0]}, by scripts/make_plateau_golden.py")
    for number, (base, factor, patience, delta, end) in enumerate(CASES):
        print(f"case type: PLATEAU base: {base} factor: {factor} plateau_patience: {patience + 1} "
              f"plateau_min_delta: {delta} end: {end}")
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=base)
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(
            optimizer, mode="max", threshold_mode="abs", factor=factor, patience=patience,
            threshold=delta, min_lr=end, eps=0)
        for accuracy in accuracies(number):
            scheduler.step(accuracy)
            print(f"{accuracy} {optimizer.param_groups[0]['lr']:.17g}")


if __name__ == "__main__":
    main()
