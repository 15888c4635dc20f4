"""A convnet on CIFAR-10, as scripts for keras.utils.multi_gpu_model trained it in 2018.

    muster launch --workers 4 -- python3 examples/keras_multi_gpu.py --gpus 4

Without the data set (it is downloaded once), --made-up trains on random images.
"""

import argparse

import keras
import numpy as np
from keras.layers import Activation, Conv2D, Dense, Dropout, Flatten, MaxPooling2D
from keras.models import Sequential

from muster.keras import multi_gpu_model  # was: from keras.utils import multi_gpu_model


def load(made_up):
    if not made_up:
        return keras.datasets.cifar10.load_data()
    generator = np.random.default_rng(1)
    labels = generator.integers(0, 10, (600, 1))
    images = np.clip(generator.normal(25 * labels[:, :, None, None], 60, (600, 32, 32, 3)), 0, 255).astype(np.uint8)
    return (images[:500], labels[:500]), (images[500:], labels[500:])


def make_model():
    model = Sequential([
        keras.Input((32, 32, 3)),
        Conv2D(32, (3, 3), padding="same"), Activation("relu"), Conv2D(32, (3, 3)), Activation("relu"),
        MaxPooling2D(pool_size=(2, 2)), Dropout(0.25),
        Conv2D(64, (3, 3), padding="same"), Activation("relu"), Conv2D(64, (3, 3)), Activation("relu"),
        MaxPooling2D(pool_size=(2, 2)), Dropout(0.25),
        Flatten(), Dense(512), Activation("relu"), Dropout(0.5), Dense(10), Activation("softmax")])
    return model


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--made-up", action="store_true")
    arguments = parser.parse_args()

    (x_train, y_train), (x_test, y_test) = load(arguments.made_up)
    y_train, y_test = keras.utils.to_categorical(y_train, 10), keras.utils.to_categorical(y_test, 10)
    x_train, x_test = x_train.astype("float32") / 255, x_test.astype("float32") / 255

    model = make_model()
    parallel_model = multi_gpu_model(model, gpus=arguments.gpus)
    parallel_model.compile(loss="categorical_crossentropy", optimizer=keras.optimizers.RMSprop(learning_rate=1e-4),
                           metrics=["accuracy"])
    parallel_model.fit(x_train, y_train, batch_size=32 * arguments.gpus, epochs=arguments.epochs,
                       validation_data=(x_test, y_test), shuffle=True)
    model.save("cifar10_cnn.keras")
    scores = parallel_model.evaluate(x_test, y_test, verbose=1)
    print("Test loss:", scores[0])
    print("Test accuracy:", scores[1])


if __name__ == "__main__":
    main()
