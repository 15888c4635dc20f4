#!/usr/bin/env python3
"""Compares how many photos per second training reads from a folder: with Muster's prefetch threads, with torchvision's
DataLoader with its best number of workers, and with tf.data. All of them decode the same files, cut a
RandomResizedCrop of 224, flip and normalize. They take turns for --rounds rounds. Each ratio is the median of the
first contender divided by the median of another one.

    bench/compare_input.py --python VENV/bin/python [--tensorflow TFVENV/bin/python] --data DIR
                           [--rounds 5 --seconds 5]

VENV has torchvision, TFVENV has TensorFlow (pip install tensorflow-cpu). DIR/train, which is measured, has a folder of
JPEG files per class; Muster also needs DIR/val. The files should fit in the page cache, so that the disk is not
measured.

Muster runs with and without data.preprocess.scaled_decoding, which is on by default. TensorFlow decodes only the crop
(decode_and_crop_jpeg), at full size, and resizes without antialiasing, as its training programs do. The others
antialias.
"""
import argparse
import os
import re
import statistics
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

TORCHVISION = """
import sys, time, torch
from torchvision import datasets, transforms
folder, workers, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
torch.set_num_threads(1)
steps = transforms.Compose([
    transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.ToTensor(),
    transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])])
loader = torch.utils.data.DataLoader(datasets.ImageFolder(folder + "/train", steps), batch_size=32, shuffle=True,
                                     num_workers=workers, persistent_workers=True)
for images, labels in loader:  # wait until the workers have started
    assert torch.isfinite(images).all()
count, start = 0, time.monotonic()
while time.monotonic() - start < seconds:
    for images, labels in loader:
        count += len(labels)
        if time.monotonic() - start >= seconds:
            break
print(count / (time.monotonic() - start))
"""

TENSORFLOW = """
import os, sys, time
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
import tensorflow as tf
folder, threads, seconds = sys.argv[1] + "/train", int(sys.argv[2]), float(sys.argv[3])
tf.config.threading.set_intra_op_parallelism_threads(threads)
tf.config.threading.set_inter_op_parallelism_threads(threads)
classes = sorted(os.listdir(folder))
files = [(os.path.join(root, name), label) for label, one in enumerate(classes)
         for root, _, names in os.walk(os.path.join(folder, one)) for name in names]

def load(path, label):
    file = tf.io.read_file(path)
    begin, size, _ = tf.image.sample_distorted_bounding_box(
        tf.io.extract_jpeg_shape(file), tf.zeros([1, 0, 4]), min_object_covered=0.0, aspect_ratio_range=(3 / 4, 4 / 3),
        area_range=(0.08, 1.0), max_attempts=10, use_image_if_no_bounding_boxes=True)
    image = tf.image.decode_and_crop_jpeg(file, tf.concat([begin[:2], size[:2]], 0), channels=3)
    image = tf.image.random_flip_left_right(tf.image.resize(image, [224, 224]))
    return (image / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225], label

data = tf.data.Dataset.from_tensor_slices(tuple(map(list, zip(*files)))).shuffle(len(files)).repeat()
data = data.map(load, num_parallel_calls=tf.data.AUTOTUNE).batch(32).prefetch(tf.data.AUTOTUNE)
options = tf.data.Options()
options.threading.private_threadpool_size = threads
batches = iter(data.with_options(options))
for _ in range(len(files) // 32 + 1):  # wait until the threads have started and tf.data has tuned their number
    assert bool(tf.reduce_all(tf.math.is_finite(next(batches)[0])))
count, start = 0, time.monotonic()
while time.monotonic() - start < seconds:
    count += len(next(batches)[1])
print(count / (time.monotonic() - start))
"""


def run(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"{command[0]}: {done.stderr}")
    return float(re.match(r"[0-9.]+", done.stdout)[0])


def main():
    cores = len(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True, help="Python with torchvision")
    parser.add_argument("--tensorflow", help="Python with TensorFlow")
    parser.add_argument("--data", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--bin", default=os.path.join(ROOT, "build/release/bin"))
    arguments = parser.parse_args()

    def muster(*more):
        return run([os.path.join(arguments.bin, "image_bench"), "--data", arguments.data, "--threads", str(cores),
                    "--seconds", str(arguments.seconds), *more])

    def peer(python, program, threads):
        return run([python, "-c", program, arguments.data, str(threads), str(arguments.seconds)])

    def torchvision(workers):
        return peer(arguments.python, TORCHVISION, workers)

    best = max((1, cores, cores + 1, 2 * cores), key=torchvision)
    ways = {f"Muster, {cores} threads": lambda: muster(),
            f"Muster, {cores} threads, decoding at full size": lambda: muster("--full"),
            f"torchvision, {best} workers": lambda: torchvision(best)}
    if arguments.tensorflow:
        ways[f"tf.data, {cores} threads"] = lambda: peer(arguments.tensorflow, TENSORFLOW, cores)
    rates = {name: [] for name in ways}
    for _ in range(arguments.rounds):
        for name, measure in ways.items():
            rates[name].append(measure())
    ours = statistics.median(next(iter(rates.values())))
    for name, all_rates in rates.items():
        median = statistics.median(all_rates)
        print(f"{name}: {median:.0f} photos/s ({min(all_rates):.0f} to {max(all_rates):.0f}), ratio {ours / median:.2f}")


if __name__ == "__main__":
    main()
