"""A loop over towers, one for each GPU, with average_gradients, as TensorFlow's tutorials of 2017 had it: a small
convnet on MNIST.

    muster launch --workers 4 -- python3 examples/tensorflow_towers.py

Without the data set (it is downloaded once), --made-up trains on random images.
"""

import argparse

import numpy as np
import tensorflow as tf

import muster.tensorflow


def load(made_up):
    if made_up:
        generator = np.random.default_rng(1)
        y = generator.integers(0, 10, 600)
        x = generator.normal(25 * y[:, None, None], 60, (600, 28, 28))
    else:
        (x, y), _ = tf.keras.datasets.mnist.load_data()
    return (x[..., None] / 255).astype(np.float32), y.astype(np.int64)


def variable(name, *shape):
    initial = tf.initializers.HeNormal(seed=len(name))(shape) if len(shape) > 1 else tf.zeros(shape)
    return tf.Variable(initial, name=name)


class Tower(tf.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bias1 = variable("conv1", 5, 5, 1, 32), variable("bias1", 32)
        self.conv2, self.bias2 = variable("conv2", 5, 5, 32, 64), variable("bias_2", 64)
        self.dense, self.bias3 = variable("dense", 7 * 7 * 64, 10), variable("bias__3", 10)

    def loss(self, x, y):
        x = tf.nn.max_pool2d(tf.nn.relu(tf.nn.conv2d(x, self.conv1, 1, "SAME") + self.bias1), 2, 2, "SAME")
        x = tf.nn.max_pool2d(tf.nn.relu(tf.nn.conv2d(x, self.conv2, 1, "SAME") + self.bias2), 2, 2, "SAME")
        logits = tf.reshape(x, (-1, 7 * 7 * 64)) @ self.dense + self.bias3
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--made-up", action="store_true")
    arguments = parser.parse_args()
    x, y = load(arguments.made_up)
    tower = Tower()
    optimizer = tf.keras.optimizers.SGD(0.05, momentum=0.9)
    job = muster.tensorflow.Job(batch_size=128, epochs=arguments.epochs)
    job.prepare(tower.trainable_variables, optimizer)

    @tf.function
    def tower_gradients(images, labels):
        with tf.GradientTape() as tape:
            loss = tower.loss(images, labels)
        return loss, tape.gradient(loss, tower.trainable_variables)

    for step in job.steps(len(x)):
        for rows in step:  # was: for i in range(num_gpus): with tf.device(f"/gpu:{i}")
            loss, gradients = tower_gradients(x[rows], y[rows])
            step.gradient(loss, gradients)
        step.apply()  # was: grads = average_gradients(tower_grads); optimizer.apply_gradients(grads)
    checkpoint = tf.train.Checkpoint(tower=tower)
    job.save("towers", lambda path: checkpoint.write(path))


if __name__ == "__main__":
    main()
