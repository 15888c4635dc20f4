"""Makes the schedule that a seed determines: how a run is started, and which fault happens when."""
import collections
import random

# The faults of runs with `muster launch`, and of runs started by hand on separate hosts.
LAUNCHED = ("server", "hang", "launcher", "stop", "worker", "workers", "slow", "disk", "damage", "clock")
BY_HAND = ("server", "hang", "launcher", "stop", "worker", "slow", "relay", "twice", "resize", "partition", "loss",
           "delay")
NETWORK = ("partition", "loss", "delay")
KINDS = tuple(dict.fromkeys(LAUNCHED + BY_HAND))

# `random` draws the other parameters of the fault.
Fault = collections.namedtuple("Fault", "kind step delay random")
Schedule = collections.namedtuple("Schedule", "by_hand relayed variant transport settings faults")


def schedule(seed, wanted, steps, variants):
    """`wanted` has `kinds`, `faults` (the number of faults) and `each` (each kind once, instead of a number). Runs
    with odd seeds are launched and runs with even seeds are started by hand, if the kinds allow both."""
    rng = random.Random(seed)
    ours = [[kind for kind in possible if kind in wanted.kinds] for possible in (LAUNCHED, BY_HAND)]
    by_hand = not ours[0] or bool(ours[1]) and seed % 2 == 0
    kinds = ours[by_hand]
    relayed = rng.random() < 0.7
    variant = rng.randrange(len(variants))
    rounded = "wire" in variants[variant].get("cluster", "")
    transport = rng.choice(["AUTO", "TCP"] if rounded else ["LOCAL", "IPC", "TCP"])
    settings = [f"cluster.shares={rng.choice(['EVEN', 'MEASURED'])}"]
    if by_hand:
        settings.append(f"cluster.encryption={rng.choice(['CURVE', 'NONE'])}")
    if wanted.each:
        kinds = rng.sample(kinds, len(kinds))
    else:
        kinds = [rng.choice(kinds) for _ in range(wanted.faults)]
    at = sorted(rng.randrange(steps * 19 // 20) for _ in kinds)
    faults = [Fault(kind, step, rng.uniform(0, 0.02), random.Random(rng.random()))
              for kind, step in zip(kinds, at)]
    return Schedule(by_hand, relayed, variant, transport, settings, faults)
