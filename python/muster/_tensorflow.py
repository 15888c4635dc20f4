"""TensorFlow in a job: threads, determinism and memory, before it computes anything."""

import os
import sys

import tensorflow as tf

from muster._shared import run_seed


def set_up() -> None:
    """Also the seeds of what the program does not seed itself, later."""
    tf.keras.utils.set_random_seed(run_seed() & 0xFFFFFFFF)
    tf.config.experimental.enable_op_determinism()
    threads = int(os.environ.get("OMP_NUM_THREADS") or 0)
    try:
        if threads:
            tf.config.threading.set_intra_op_parallelism_threads(threads)
            tf.config.threading.set_inter_op_parallelism_threads(1)
        for gpu in tf.config.list_physical_devices("GPU"):
            tf.config.experimental.set_memory_growth(gpu, True)
    except RuntimeError:
        print("muster: TensorFlow had begun to compute before muster was imported, so its threads and memory are as "
              "they were: expected the import before", file=sys.stderr)


def describe() -> str:
    """What the bits depend on besides the program."""
    gpus = tf.config.list_physical_devices("GPU")
    device = tf.config.experimental.get_device_details(gpus[0]).get("device_name", "GPU") if gpus else "CPU"
    return f"{device}, tensorflow {tf.__version__}, keras {tf.keras.__version__}"
