"""Lists and damages the checkpoints of a run."""
import os
import re
import shutil

KINDS = ("cut", "flip", "flip", "flip", "zeros", "grow", "swap", "foreign", "gone", "empty", "renamed",
         "another")


def age(name):
    """Returns a sort key for the age as in docs/CHECKPOINTS.md: the server's generation, then the step."""
    step, generation, evaluated = re.fullmatch(r"step-(\d+)-g(\d+)(-evaluated)?", name).groups()
    return int(generation), int(step), evaluated is not None


def checkpoints_of(folder):
    """Returns the names of a run's checkpoints, newest last."""
    try:
        names = os.listdir(folder + "/checkpoints")
    except FileNotFoundError:
        return []
    return sorted((name for name in names if name.startswith("step-") and "." not in name), key=age)


def damage(rng, newest, before, foreign):
    """Damages the newest checkpoint in a random way and returns a description."""
    name = rng.choice(["state.pb", "tensors.safetensors"])
    path, size = f"{newest}/{name}", os.path.getsize(f"{newest}/{name}")
    kind = rng.choice(KINDS)
    if kind == "cut":
        os.truncate(path, rng.randrange(size))
    elif kind == "empty":
        os.truncate(path, 0)
    elif kind in ("flip", "zeros"):
        with open(path, "r+b") as file:
            at = rng.randrange(size)
            file.seek(at)
            old = file.read(1 if kind == "flip" else 4096)
            new = bytes([old[0] ^ (1 << rng.randrange(8))]) if kind == "flip" else bytes(len(old))
            if new == old:  # the bytes were zeros already
                new = bytes([1]) + old[1:]
            file.seek(at)
            file.write(new)
    elif kind == "grow":
        with open(path, "ab") as file:
            file.write(b" " * rng.randint(1, 5000))
    elif kind == "gone":
        os.remove(path)
    elif kind == "swap":
        shutil.copy(f"{before}/{name}", path)
    elif kind == "foreign":
        shutil.copy(f"{foreign}/{name}", path)
    else:  # replace the newest with an older one or with one of another run, keeping the name
        shutil.rmtree(newest)
        shutil.copytree(before if kind == "renamed" else foreign, newest)
    return f"{kind} {name}"
