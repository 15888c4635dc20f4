"""Selects the Pythons that run the peers: Debian's by default, or those of virtual environments."""
import json
import os
import subprocess
import sys

PEERS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "peers")


def add_arguments(parser):
    parser.add_argument("--python", default="/usr/bin/python3", metavar="PATH",
                        help="the Python with the peer's PyTorch (default: %(default)s)")
    parser.add_argument("--bf16", action="store_true", help="run the peer in bfloat16")
    parser.add_argument("--compile", action="store_true", help="run the peer with torch.compile")


def command(arguments, program):
    """Returns the command that runs bench/peers/PROGRAM with these options."""
    flags = [flag for flag, on in (("--bf16", arguments.bf16), ("--compile", arguments.compile)) if on]
    return [arguments.python, os.path.join(PEERS, program)] + flags


def tensorflow_command(arguments):
    """Returns the command that runs bench/peers/tensorflow_train.py. Ends the program if that Python has no TensorFlow."""
    try:
        done = subprocess.run([arguments.tensorflow, "-c", "import tensorflow; print(tensorflow.__version__)"],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=300)
    except OSError as error:
        sys.exit(f"--tensorflow {arguments.tensorflow}: {error.strerror}; expected a Python with TensorFlow")
    if done.returncode != 0:
        sys.exit(f"--tensorflow {arguments.tensorflow}: cannot import tensorflow; expected a virtual environment with it "
                 "(pip install tensorflow-cpu)")
    return [arguments.tensorflow, os.path.join(PEERS, "tensorflow_train.py")] + ["--bf16"] * arguments.bf16


def describe(arguments):
    """Describes PyTorch, its oneDNN and the processor in one line. Returns None if the selected Python has no
    PyTorch."""
    try:
        done = subprocess.run([arguments.python, os.path.join(PEERS, "versions.py")], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=300)
    except OSError as error:
        sys.exit(f"--python {arguments.python}: {error.strerror}; expected a Python with PyTorch")
    except subprocess.TimeoutExpired:
        sys.exit(f"--python {arguments.python}: importing torch took more than 300 s; is the machine busy?")
    if done.returncode != 0:
        return None
    found = json.loads(done.stdout)
    how = " and ".join(word for word, on in (("bf16", arguments.bf16), ("torch.compile", arguments.compile)) if on)
    return (f"peer: PyTorch {found['torch']}, oneDNN {found['onednn']}, {how or 'default settings (fp32, eager)'}; "
            f"processor: {found['processor']}, {found['capability']}")
