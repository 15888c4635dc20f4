#!/usr/bin/python3
"""Prints one JSON object: the versions of PyTorch and its oneDNN, the processor, and the instruction set that
PyTorch selected."""
import json
import platform
import re

import torch


def processor():
    with open("/proc/cpuinfo") as lines:
        for line in lines:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown"


def onednn():
    # PyTorch 1 calls oneDNN MKL-DNN.
    found = re.search(r"(?:MKL-DNN|oneDNN) v([0-9.]+)", torch.__config__.show())
    return found.group(1) if found else "unknown"


if __name__ == "__main__":
    capability = getattr(torch.backends.cpu, "get_cpu_capability", lambda: "unknown")
    print(json.dumps({"torch": torch.__version__, "onednn": onednn(), "processor": processor(),
                      "capability": capability()}))
