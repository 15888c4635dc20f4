#!/usr/bin/env python3
"""Writes tests/ps/golden/optimizers.txt: 100 steps of torch.optim on given gradients.

    python3 scripts/make_optimizer_golden.py > tests/ps/golden/optimizers.txt

The test computes the same start and gradients (`start` and `gradient` use only sums and products that
are exact in fp32). The lines of each case:

    case NAME | SETTINGS (protobuf text of muster.config.Optimizer) | LEARNING RATE
    w_0 w_1 ... w_7          the weights after 1 step
    ...                      after 2, 10 and 100 steps
"""
import torch

SIZE, STEPS, SHOWN = 8, 100, (1, 2, 10, 100)


def start(i):
    return (i * 5 % 8 - 4) / 8


def gradient(step, i):
    """Multiples of 1/64 in [-1, 1), scaled differently for each element."""
    return ((step * 37 + i * 59 + step * i * 11) % 128 - 64) / 64 / 2 ** (i % 4)


CASES = [
    ("sgd", "type: SGD", 0.1, lambda p, lr: torch.optim.SGD(p, lr)),
    ("sgd_decay", "type: SGD weight_decay: 0.01", 0.1,
     lambda p, lr: torch.optim.SGD(p, lr, weight_decay=0.01)),
    ("momentum", "type: MOMENTUM momentum: 0.9 weight_decay: 0.005", 0.05,
     lambda p, lr: torch.optim.SGD(p, lr, momentum=0.9, weight_decay=0.005)),
    ("nesterov", "type: NESTEROV momentum: 0.9 weight_decay: 0.005", 0.05,
     lambda p, lr: torch.optim.SGD(p, lr, momentum=0.9, nesterov=True, weight_decay=0.005)),
    ("adam", "type: ADAM", 0.01, lambda p, lr: torch.optim.Adam(p, lr)),
    ("adam_betas", "type: ADAM beta1: 0.8 beta2: 0.95 epsilon: 1e-4 weight_decay: 0.02", 0.01,
     lambda p, lr: torch.optim.Adam(p, lr, betas=(0.8, 0.95), eps=1e-4, weight_decay=0.02)),
    ("adamw", "type: ADAMW weight_decay: 0.1", 0.01,
     lambda p, lr: torch.optim.AdamW(p, lr, weight_decay=0.1)),
    ("rmsprop", "type: RMSPROP", 0.01, lambda p, lr: torch.optim.RMSprop(p, lr)),
    ("rmsprop_momentum", "type: RMSPROP rho: 0.9 momentum: 0.5 epsilon: 1e-3 weight_decay: 0.01",
     0.01, lambda p, lr: torch.optim.RMSprop(p, lr, alpha=0.9, momentum=0.5, eps=1e-3,
                                             weight_decay=0.01)),
]


def main():
    print(f"# torch.optim {torch.__version__.split('+')[0]}, by scripts/make_optimizer_golden.py")
    for name, settings, rate, make in CASES:
        w = torch.nn.Parameter(torch.tensor([start(i) for i in range(SIZE)]))
        optimizer = make([w], rate)
        print(f"case {name} | {settings} | {rate}")
        for step in range(1, STEPS + 1):
            w.grad = torch.tensor([gradient(step, i) for i in range(SIZE)])
            optimizer.step()
            if step in SHOWN:
                print(" ".join(f"{x:.9g}" for x in w.detach().tolist()))


if __name__ == "__main__":
    main()
