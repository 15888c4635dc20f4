"""Trains a model with Keras's fit for bench/compare_keras.py, and prints seconds and the loss as JSON.

usage: keras_model.py plain|compiled|mirrored|muster MODEL BATCH STEPS
"""
import json
import os
import sys
import time

MODE, NAME, BATCH, STEPS = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:5])
import tensorflow as tf  # noqa: E402

if MODE == "mirrored":
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
import keras  # noqa: E402
import numpy as np  # noqa: E402
from keras import layers  # noqa: E402

if MODE == "muster":
    import muster.keras


class Clock(keras.callbacks.Callback):
    """The time of the second epoch."""

    def on_epoch_begin(self, epoch, logs=None):
        self.began = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        self.seconds = time.perf_counter() - self.began


def block(x, filters, stride):
    shortcut = x if stride == 1 and x.shape[-1] == filters else \
        layers.BatchNormalization()(layers.Conv2D(filters, 1, stride, use_bias=False)(x))
    x = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(filters, 3, stride, "same", use_bias=False)(x)))
    x = layers.BatchNormalization()(layers.Conv2D(filters, 3, 1, "same", use_bias=False)(x))
    return layers.ReLU()(layers.add([x, shortcut]))


def make():
    """A model, the shape of a sample, and the number of classes."""
    if NAME == "mnist":
        return keras.Sequential([keras.Input((28, 28, 1)), layers.Conv2D(32, 5, activation="relu", padding="same"),
                                 layers.MaxPooling2D(), layers.Conv2D(64, 5, activation="relu", padding="same"),
                                 layers.MaxPooling2D(), layers.Flatten(), layers.Dense(512, activation="relu"),
                                 layers.Dense(10)])
    if NAME == "mlp":  # 100 million parameters
        return keras.Sequential([keras.Input((4096,)), *(layers.Dense(4096, activation="relu") for _ in range(6)),
                                 layers.Dense(10)])
    inputs = x = keras.Input((32, 32, 3))
    x = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(64, 3, 1, "same", use_bias=False)(x)))
    for i, filters in enumerate((64, 128, 256, 512)):
        x = block(block(x, filters, 1 if i == 0 else 2), filters, 1)
    return keras.Model(inputs, layers.Dense(10)(layers.GlobalAveragePooling2D()(x)))


def main():
    keras.utils.set_random_seed(1)
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]) if MODE == "mirrored" else \
        muster.keras.Strategy() if MODE == "muster" else None
    scope = strategy.scope() if strategy else tf.init_scope()
    with scope:
        model = make()
        model.compile(keras.optimizers.Adam(1e-4), keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                      jit_compile=MODE == "compiled")
    generator = np.random.default_rng(1)
    x = generator.normal(size=(BATCH * STEPS, *model.input_shape[1:])).astype(np.float32)
    y = generator.integers(0, 10, BATCH * STEPS)
    clock = Clock()
    history = model.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False, callbacks=[clock], verbose=0).history
    if int(os.environ.get("MUSTER_RANK", "0")) == 0:
        print(json.dumps({"seconds": clock.seconds, "loss": history["loss"][1]}), flush=True)


main()
