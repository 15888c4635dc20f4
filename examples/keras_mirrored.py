"""MobileNetV2 on a folder of cats and dogs: first a new head, then all of it. Was: tf.distribute.MirroredStrategy.

    muster launch --workers 4 -- python3 examples/keras_mirrored.py PetImages

PetImages has a folder for each class. Without one, images are made up. The weights of ImageNet are downloaded once;
--scratch begins without them.
"""

import argparse
import os

import keras
import numpy as np

import muster.keras

SIZE = 96


def made_up(count):
    """Two classes of noise with another colour, in a folder here, which all processes share."""
    folder = "made_up_cats_and_dogs"
    generator = np.random.default_rng(1)
    for name, colour in (("cats", (200, 120, 60)), ("dogs", (60, 120, 200))):
        os.makedirs(os.path.join(folder, name), exist_ok=True)
        for i in range(count // 2):
            path = os.path.join(folder, name, f"{i}.png")
            image = np.clip(generator.normal(colour, 90, (SIZE, SIZE, 3)), 0, 255)
            if not os.path.exists(path):
                part = os.path.join(folder, f"{os.getpid()}.png")  # which is in no class
                keras.utils.save_img(part, image)
                os.replace(part, path)  # another process may do the same
    return folder


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", nargs="?")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--scratch", action="store_true")
    arguments = parser.parse_args()

    strategy = muster.keras.Strategy()  # was: tf.distribute.MirroredStrategy()
    folder = arguments.folder or made_up(160)
    training, validation = keras.utils.image_dataset_from_directory(
        folder, validation_split=0.25, subset="both", seed=1, image_size=(SIZE, SIZE),
        batch_size=8 * strategy.num_replicas_in_sync, label_mode="binary")

    with strategy.scope():
        base = keras.applications.MobileNetV2(input_shape=(SIZE, SIZE, 3), include_top=False, pooling="avg", alpha=0.35,
                                              weights=None if arguments.scratch else "imagenet")
        base.trainable = False
        inputs = keras.Input((SIZE, SIZE, 3))
        flipped = keras.layers.RandomFlip("horizontal")(inputs)
        features = base(keras.layers.Rescaling(1 / 127.5, offset=-1)(flipped), training=False)
        outputs = keras.layers.Dense(1)(keras.layers.Dropout(0.2)(features))
        model = keras.Model(inputs, outputs)
        model.compile(keras.optimizers.Adam(1e-3), keras.losses.BinaryCrossentropy(from_logits=True),
                      metrics=[keras.metrics.BinaryAccuracy(threshold=0, name="accuracy")])

    model.fit(training, epochs=arguments.epochs, validation_data=validation)
    base.trainable = True
    model.compile(keras.optimizers.Adam(1e-5), keras.losses.BinaryCrossentropy(from_logits=True),
                  metrics=[keras.metrics.BinaryAccuracy(threshold=0, name="accuracy")])
    model.fit(training, epochs=arguments.epochs, validation_data=validation)
    model.save("cats_and_dogs.keras")


if __name__ == "__main__":
    main()
