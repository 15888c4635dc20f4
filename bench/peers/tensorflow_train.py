#!/usr/bin/env python3
"""TensorFlow with the networks of configs/models, on data in memory, with momentum, or Adam for multigpu_cnn. One
process: with all cores, or with --mirrored as MirroredStrategy over one logical CPU per core. Prints one JSON object:
images per second, the median of several repetitions. Needs TensorFlow (`pip install tensorflow-cpu`).

    bench/peers/tensorflow_train.py [--model tutorial] [--batch 256] [--seconds 5] [--repeat 3] [--bf16] [--mirrored]
"""
import argparse
import json
import os
import statistics
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import tensorflow as tf

L = tf.keras.layers


@tf.keras.utils.register_keras_serializable()
class Lrn(L.Layer):
    """Computes in fp32, because there is no kernel for bf16."""

    def call(self, x):
        return tf.nn.local_response_normalization(x, 4, 1.0, 0.001 / 9, 0.75)


def tutorial(x, lrn=True):
    norm = (lambda y: Lrn(dtype="float32")(y)) if lrn else (lambda y: y)
    x = L.MaxPool2D(3, 2, "same")(L.Conv2D(64, 5, padding="same", activation="relu")(x))
    x = norm(L.Conv2D(64, 5, padding="same", activation="relu")(norm(x)))
    x = L.Flatten()(L.MaxPool2D(3, 2, "same")(x))
    return L.Dense(10)(L.Dense(192, "relu")(L.Dense(384, "relu")(x)))


def multigpu_cnn(x):
    x = L.MaxPool2D(2)(L.Conv2D(64, 5, activation="relu")(x))
    x = L.Conv2D(512, 3, activation="relu")(L.Conv2D(256, 3, activation="relu")(x))
    x = L.Dropout(0.75)(L.Dense(2048)(L.Flatten()(L.MaxPool2D(2)(x))))
    return L.Dense(10)(L.Dropout(0.75)(L.Dense(1024)(x)))


def normalized(x, layer, activation="relu"):
    x = L.BatchNormalization()(layer(x))
    return L.Activation(activation)(x) if activation else x


def conv(channels, size, stride=1):
    return L.Conv2D(channels, size, stride, "same", use_bias=False)


def resnet(x, widths, blocks):
    x = normalized(x, conv(widths[0], 3))
    for stage, channels in enumerate(widths):
        for block in range(blocks):
            stride = 2 if stage and block == 0 else 1
            shortcut = x if x.shape[-1] == channels else normalized(x, conv(channels, 1, stride), None)
            y = normalized(normalized(x, conv(channels, 3, stride)), conv(channels, 3), None)
            x = L.Activation("relu")(L.Add()([y, shortcut]))
    return L.Dense(10)(L.GlobalAveragePooling2D()(x))


def mobilenet_v2(x):
    x = normalized(x, conv(32, 3, 2), "relu6")
    for expansion, channels, repeats, first_stride in [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2),
                                                       (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]:
        for repeat in range(repeats):
            stride = first_stride if repeat == 0 else 1
            y = normalized(x, conv(x.shape[-1] * expansion, 1), "relu6") if expansion > 1 else x
            y = normalized(y, L.DepthwiseConv2D(3, stride, "same", use_bias=False), "relu6")
            y = normalized(y, conv(channels, 1), None)
            x = L.Add()([x, y]) if stride == 1 and x.shape[-1] == channels else y
    x = L.Dropout(0.2)(L.GlobalAveragePooling2D()(normalized(x, conv(1280, 1), "relu6")))
    return L.Dense(1000)(x)


# name: (the network, shape of an image, classes)
MODELS = {
    "tutorial": (tutorial, (24, 24, 3), 10),
    "tutorial_no_lrn": (lambda x: tutorial(x, lrn=False), (24, 24, 3), 10),
    "multigpu_cnn": (multigpu_cnn, (28, 28, 1), 10),
    "resnet20": (lambda x: resnet(x, [16, 32, 64], 3), (32, 32, 3), 10),
    "resnet18": (lambda x: resnet(x, [64, 128, 256, 512], 2), (32, 32, 3), 10),
    "mobilenet_v2": (mobilenet_v2, (224, 224, 3), 1000),
}


class Rates(tf.keras.callbacks.Callback):
    """Measures the time of the steps after the first WARM_UP ones, and ends training."""
    WARM_UP = 4

    def __init__(self, batch, seconds, repeat):
        super().__init__()
        self.batch, self.seconds, self.repeat = batch, seconds, repeat
        self.rates, self.losses = [], []
        self.done = 0

    def on_train_batch_end(self, _, logs=None):
        self.done += 1
        now = time.perf_counter()
        if self.done <= self.WARM_UP:
            self.first, self.began = self.done, now
            return
        if now - self.began < self.seconds:
            return
        self.rates.append((self.done - self.first) * self.batch / (now - self.began))
        self.losses.append(float(logs["loss"]))
        self.first, self.began = self.done, time.perf_counter()
        self.model.stop_training = len(self.rates) == self.repeat


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", choices=list(MODELS), default="tutorial")
    parser.add_argument("--batch", type=int, default=256, help="of a step, on all cores together")
    parser.add_argument("--seconds", type=float, default=5, help="duration of each repetition")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--bf16", action="store_true", help="the policy mixed_bfloat16")
    parser.add_argument("--mirrored", action="store_true", help="MirroredStrategy over one logical CPU per core")
    arguments = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    tf.config.threading.set_intra_op_parallelism_threads(1 if arguments.mirrored else cores)
    tf.config.threading.set_inter_op_parallelism_threads(cores if arguments.mirrored else 1)
    strategy = tf.distribute.get_strategy()
    if arguments.mirrored:
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * cores)
        strategy = tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(cores)])
    if arguments.bf16:
        tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")
    tf.keras.utils.set_random_seed(1)
    network, shape, classes = MODELS[arguments.model]
    with strategy.scope():
        data = L.Input(shape)
        model = tf.keras.Model(data, L.Activation("linear", dtype="float32")(network(data)))
        optimizer = tf.keras.optimizers.Adam(1e-3) if arguments.model == "multigpu_cnn" else \
            tf.keras.optimizers.SGD(1e-3, momentum=0.9)
        model.compile(optimizer, tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    batches = 4
    images = tf.random.normal((batches * arguments.batch, *shape))
    labels = tf.random.uniform((batches * arguments.batch,), maxval=classes, dtype=tf.int32)
    dataset = tf.data.Dataset.from_tensor_slices((images, labels)).batch(arguments.batch, drop_remainder=True)
    dataset = dataset.cache().repeat().prefetch(4)
    rates = Rates(arguments.batch, arguments.seconds, arguments.repeat)
    model.fit(dataset, steps_per_epoch=10**9, verbose=0, shuffle=False, callbacks=[rates])
    assert all(loss == loss and loss < 1e3 for loss in rates.losses) and len(set(rates.losses)) > 1, \
        f"did not train: {rates.losses}"
    print(json.dumps({"images_per_second": statistics.median(rates.rates), "all": rates.rates,
                      "tensorflow": tf.__version__}))


if __name__ == "__main__":
    main()
