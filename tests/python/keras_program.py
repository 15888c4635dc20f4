"""Keras programs of docs/KERAS.md, in many variants.

usage: keras_program.py MODE
"""

import hashlib
import json
import os
import pathlib
import sys
import time

import keras
import numpy as np

import muster.keras

MODE = sys.argv[1] if len(sys.argv) > 1 else ""  # keras_test.py imports this file
EPOCHS = 16 if MODE == "slow" else 4


def data(count=100):
    generator = np.random.default_rng(7)
    y = generator.integers(0, 3, count)
    return (generator.normal(size=(count, 6)) + y[:, None]).astype(np.float32), y


class Batches(keras.utils.PyDataset):
    """Of which two in a row differ by random numbers, and epochs by what on_epoch_end does."""

    def __init__(self):
        super().__init__()
        self.x, self.y = data()
        self.order = np.arange(len(self.y))

    def __len__(self):
        return 5

    def __getitem__(self, index):
        rows = self.order[20 * index:20 * index + 20]
        return self.x[rows] + np.random.normal(size=(20, 6)).astype(np.float32), self.y[rows]

    def on_epoch_end(self):
        np.random.shuffle(self.order)


class Slow(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        time.sleep(0.3)


class Held(keras.utils.PyDataset):
    """For validation. The second one lasts, the first time."""

    def __len__(self):
        return 4

    def __getitem__(self, index):
        if pathlib.Path("epoch-1").exists() and not pathlib.Path("held").exists():
            pathlib.Path("held").touch()
            time.sleep(3)
        x, y = data(40)
        return x[10 * index:10 * index + 10], y[10 * index:10 * index + 10]


class Tells(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        pathlib.Path(f"epoch-{epoch}").touch()


class Fails(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        if epoch == 1 and not pathlib.Path("mended").exists():
            raise ValueError("an error of the program")


class Looks(keras.callbacks.Callback):
    """Within an epoch it sets weights, and keeps others."""

    def on_train_batch_begin(self, batch, logs=None):
        if batch == 2:
            kernel = self.model.layers[0].kernel
            kernel.assign(keras.ops.clip(kernel, -0.3, 0.3))

    def on_epoch_end(self, epoch, logs=None):
        kernel = self.model.layers[0].kernel
        logs["largest"] = float(keras.ops.max(keras.ops.abs(kernel)))
        logs["moved"] = 0.0 if epoch == 0 else float(keras.ops.sum(keras.ops.abs(kernel - self.kept)))
        self.kept = keras.ops.copy(kernel)


class Shrinks(keras.callbacks.Callback):
    """Weights that a callback sets."""

    def on_epoch_end(self, epoch, logs=None):
        self.model.set_weights([0.9 * one for one in self.model.get_weights()])


class Custom(keras.Model):
    """A train_step of its own, and a metric under another name."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner
        self.tracker = keras.metrics.Mean(name="tracked")

    def call(self, x, training=False):
        return self.inner(x, training=training)

    @property
    def metrics(self):
        return [self.tracker]

    def train_step(self, data):
        if keras.backend.backend() == "torch":
            return self.torch_step(data)
        import tensorflow as tf
        x, y = data
        with tf.GradientTape() as tape:
            loss = keras.ops.mean(keras.losses.sparse_categorical_crossentropy(y, self(x, training=True), True))
        gradients = tape.gradient(loss, self.trainable_weights)
        for _ in range(2 if MODE == "two_updates" else 1):
            self.optimizer.apply_gradients(zip(gradients, self.trainable_weights))
        self.tracker.update_state(loss)
        return {"loss": self.tracker.result(), "twice": 2 * loss}

    def torch_step(self, data):
        x, y = data
        self.zero_grad()
        loss = keras.ops.mean(keras.losses.sparse_categorical_crossentropy(y, self(x, training=True), True))
        loss.backward()
        self.optimizer.apply([one.value.grad for one in self.trainable_weights], self.trainable_weights)
        self.tracker.update_state(loss)
        return {"loss": self.tracker.result(), "twice": 2 * loss}


class Counting(keras.layers.Layer):
    """A state from slice to slice that is no variable."""

    calls = 0

    def call(self, x):
        Counting.calls += 1
        return x * (1 + 0.01 * Counting.calls)


def make_model():
    layers = keras.layers
    middle = [layers.BatchNormalization(), layers.Dropout(0.3)]
    if MODE == "counts":
        middle.append(Counting())
    inner = [layers.Dense(16, activation="relu", kernel_regularizer="l2"), *middle, layers.Dense(3)]
    model = keras.Sequential(inner if MODE == "unbuilt" else [keras.Input((6,)), *inner])
    return Custom(model) if MODE in ("custom", "two_updates") else model


def make_optimizer():
    optimizers = keras.optimizers
    if MODE == "scaled":
        return optimizers.LossScaleOptimizer(optimizers.Adam(0.01), initial_scale=2.0**126, dynamic_growth_steps=5)
    if MODE == "average":
        return optimizers.SGD(0.05, momentum=0.9, use_ema=True, clipnorm=1.0, weight_decay=0.01)
    return optimizers.Adam(0.01)


def compile_model(model):
    metrics = ["accuracy", keras.metrics.F1Score(average="macro", name="f1")] if MODE == "metrics" else ["accuracy"]
    if MODE == "metrics":
        model.compile(make_optimizer(), keras.losses.CategoricalCrossentropy(from_logits=True), metrics=metrics)
    else:
        model.compile(make_optimizer(), keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=metrics,
                      run_eagerly=MODE == "counts" or None)


def callbacks():
    found = {
        "stops": [keras.callbacks.EarlyStopping("loss", mode="max", patience=1, restore_best_weights=True)],
        "plateau": [keras.callbacks.ReduceLROnPlateau("loss", mode="max", patience=0, factor=0.5),
                    keras.callbacks.CSVLogger("log.csv"),
                    keras.callbacks.ModelCheckpoint("best.keras", "loss", save_best_only=True),
                    keras.callbacks.TensorBoard("board"), keras.callbacks.BackupAndRestore("backup")],
        "held": [Tells(), keras.callbacks.EarlyStopping("loss", patience=9, restore_best_weights=True), Shrinks(),
                 keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.9)],
        "looks": [Looks(), keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: logs["loss"])],
        "fails": [keras.callbacks.EarlyStopping("loss", patience=9, restore_best_weights=True), Fails(),
                  keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.9)],
        "schedule": [keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.5)],
        "slow": [Slow(), keras.callbacks.EarlyStopping("loss", patience=9, restore_best_weights=True), Shrinks(),
                 keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.9)],
    }
    return found.get(MODE, [])


def dataset():
    """What fit gets."""
    x, y = data()
    options = {"batch_size": 32}
    if MODE == "batches":
        return {"x": Batches()}
    if MODE == "loader":
        import torch
        pairs = torch.utils.data.TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
        return {"x": torch.utils.data.DataLoader(pairs, batch_size=32, shuffle=True)}
    if MODE.startswith("stream"):
        import tensorflow as tf
        stream = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(100).batch(32)
        return {"x": stream.repeat(), "steps_per_epoch": 3} if MODE == "stream_repeats" else {"x": stream}
    if MODE == "generator":
        return {"x": iter([(x, y)])}
    if MODE == "weights":
        options["class_weight"] = {0: 2.0, 2: 0.5}
    if MODE == "sample_weights":
        options["sample_weight"] = np.linspace(0, 1, len(y))
    if MODE == "metrics":
        y = np.eye(3, dtype=np.float32)[y]
    return {"x": x, "y": y, "shuffle": MODE != "in_order", **options}


def two_fits(model):
    """The head first, and then all of it, with other data."""
    x, y = data()
    saves = [Slow(), keras.callbacks.ModelCheckpoint("each.keras")]
    model.layers[0].trainable = False
    compile_model(model)
    first = model.fit(x, y, batch_size=25, epochs=2, validation_data=data(30), verbose=0, callbacks=saves).history
    model.set_weights([0.5 * one for one in model.get_weights()])
    model.layers[0].trainable = True
    model.compile(keras.optimizers.SGD(0.01, momentum=0.9),
                  keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"])
    second = model.fit(x, y, batch_size=64, initial_epoch=2, epochs=5, verbose=0, callbacks=saves).history
    return {**first, **{f"then {name}": values for name, values in second.items()}}


def main():
    if MODE == "mixed":
        keras.mixed_precision.set_global_policy("mixed_bfloat16")
    strategy = muster.keras.Strategy()
    with strategy.scope():
        model = make_model()
        compile_model(model)
    if MODE == "two_fits":
        history = two_fits(model)
    else:
        given = dataset()
        validation = {"x": {"validation_data": given["x"]}}.get(MODE) or \
            {"validation_split": 0.2} if "y" in given else {"validation_data": data(30), "validation_batch_size": 7}
        if MODE in ("held", "fails"):
            validation = {"validation_data": Held()}
        if MODE == "metrics":
            validation = {"validation_split": 0.2, "validation_freq": 2}
        history = model.fit(**given, epochs=EPOCHS, callbacks=callbacks(), **validation).history
    x, y = data(30)
    if MODE not in ("metrics", "custom"):
        history["tested"] = model.evaluate(x, y, batch_size=8, verbose=0)
    predicted = model.predict(x, verbose=0)
    history["predicted"] = hashlib.sha256(predicted.tobytes()).hexdigest()[:8]
    if isinstance(model, Custom):
        model.save_weights("model.weights.h5")
    else:
        model.save("model.keras")
    if MODE == "again":
        loaded = keras.models.load_model("model.keras")
        history["again"] = bool((loaded(x).numpy() == predicted).all())
    history = {name: [float(one) for one in values] if isinstance(values, list) else values
               for name, values in history.items()}
    print(f"values {json.dumps(history, sort_keys=True)}")
    rate = float(np.asarray(keras.ops.convert_to_numpy(model.optimizer.learning_rate)))
    print(f"rate {rate:.6g}")
    pathlib.Path(f"ended-{os.getpid()}").touch()


if __name__ == "__main__":
    main()
