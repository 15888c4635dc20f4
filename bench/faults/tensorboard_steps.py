"""Reads the steps in the event files of a run directory, without TensorBoard."""
import collections
import os


class Twice(Exception):
    """A step appears twice."""


def fields(data):
    """Yields the fields of a protobuf message: number, and an integer or bytes."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7

    while at < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
        else:
            size = {1: 8, 5: 4}.get(key & 7) or varint()
            yield key >> 3, data[at:at + size]
            at += size


def records(path):
    """Yields the events of an event file, up to the first incomplete one."""
    with open(path, "rb") as file:
        while len(head := file.read(12)) == 12:
            size = int.from_bytes(head[:8], "little")
            body = file.read(size + 4)
            if len(body) < size + 4:
                return
            yield dict(fields(body[:size])), [value for number, value in fields(body[:size]) if number == 5]


# The tag of the chart layout, which the server writes again each time it starts.
LAYOUT = "custom_scalars__config__"


def shown(folder):
    """Returns the steps of each tag on disk. A duplicate step is an error."""
    steps = collections.defaultdict(list)
    for name in sorted(os.listdir(folder)):
        if not name.startswith("events.out.tfevents."):
            continue
        for event, summaries in records(f"{folder}/{name}"):
            step = event.get(2, 0)
            for summary in summaries:
                for number, value in fields(summary):
                    tag = dict(fields(value)).get(1, b"").decode() if number == 1 else "_"
                    if not tag.startswith("_") and tag != LAYOUT:
                        if step in steps[tag]:
                            raise Twice(f"{tag} of step {step} appears twice: {name}")
                        steps[tag].append(step)
    # Exclude the times of ranks, which depend on when workers report and are not part of the
    # result.
    return {tag: sorted(each) for tag, each in steps.items() if each and "/rank_" not in tag}
