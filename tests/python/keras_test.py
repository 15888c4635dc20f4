"""Keras programs: real jobs of keras_program.py, alone and launched."""

import functools
import json
import os
import pathlib
import re
import runpy
import signal
import unittest

import job as jobs
from job import Job, skip_without

skip_without("numpy", "keras", "tensorflow", "torch")
import keras  # noqa: E402  (without computing anything, because this process forks)
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

PROGRAM = str(pathlib.Path(__file__).with_name("keras_program.py"))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


def start(mode, workers=1, settings="", backend="tensorflow", **more):
    os.environ["KERAS_BACKEND"] = backend
    try:
        return Job(PROGRAM, mode, workers=workers, config=f"run {{ slices: 4 }} {settings}", **more)
    finally:
        del os.environ["KERAS_BACKEND"]


@functools.cache
def run(mode, workers=1, backend="tensorflow"):
    return start(mode, workers, backend=backend).end().ok()


@functools.cache
def alone(mode):
    """In a fork of this process, which need not import TensorFlow again."""
    def main():
        os.environ["MUSTER_ALONE"] = "1"
        runpy.run_path(PROGRAM, run_name="__main__")

    return jobs.alone(main, PROGRAM, mode)


def values(outcome):
    """What all processes that reached the end of the program have seen."""
    found = set(re.findall(r"^values (.*)", outcome.logs or outcome.log, re.M))
    assert len(found) == 1, outcome.log
    return json.loads(found.pop())


class Bits(unittest.TestCase):
    def same(self, *outcomes):
        for one in outcomes[1:]:
            self.assertEqual(one.ok().hash, outcomes[0].ok().hash)
            self.assertEqual(values(one), values(outcomes[0]))

    def test_workers(self):
        self.same(run("plain"), run("plain", 2), run("plain", 4))
        self.assertEqual(values(alone("plain")), values(run("plain")))
        self.assertIn("num_replicas_in_sync", (run("plain", 2).run / "worker-0.log").read_text())

    def test_the_torch_backend(self):
        self.same(run("plain", 1, "torch"), run("plain", 2, "torch"))
        self.same(run("custom", 1, "torch"), run("custom", 4, "torch"))

    def test_what_fit_takes(self):
        for mode in ("batches", "stream", "scaled", "custom", "metrics"):
            with self.subTest(mode):
                self.assertEqual(values(run(mode, 2)), values(alone(mode)))

    def test_callbacks(self):
        outcome = run("plateau", 2)
        self.assertEqual(values(outcome), values(alone("plateau")))
        folder = outcome.run.parent
        table = (folder / "log.csv").read_text().splitlines()
        self.assertEqual(len(table), 5)
        self.assertEqual([float(one) for one in values(outcome)["loss"]],
                         [float(line.split(",")[table[0].split(",").index("loss")]) for line in table[1:]])
        self.assertEqual(len(list((folder / "board/train").glob("events*"))), 1)
        self.assertTrue((folder / "best.keras").exists())
        self.assertEqual((alone("plateau").run / "log.csv").read_text().splitlines(), table)
        self.assertIn("BackupAndRestore is left out", outcome.log)
        self.assertFalse((folder / "backup").exists())

    def test_callbacks_within_an_epoch(self):
        self.same(run("looks"), run("looks", 2))
        self.assertEqual(values(alone("looks")), values(run("looks")))
        self.assertLess(max(values(run("looks"))["largest"]), 0.35)
        self.assertGreater(min(values(run("looks"))["moved"][1:]), 0.1)

    def test_a_fit_that_ends_early_and_restores_the_best_weights(self):
        outcome = run("stops", 2)
        self.assertEqual(values(outcome), values(alone("stops")))
        self.assertEqual(len(values(outcome)["loss"]), 2)
        self.assertNotIn("stop_reason", outcome.metrics[-1])

    def test_two_fits_with_kills_and_a_resume(self):
        """Another number of workers, other variables, another optimizer, weights that the program sets."""
        expected = run("two_fits")
        job = start("two_fits", 2, "checkpoint { every_steps: 4 }")  # an epoch of the first fit, which saves a file
        for step, victim, number in ((3, PROGRAM, 1), (5, "muster-server", 0), (11, PROGRAM, -1)):  # -1 updates
            job.reaches(step)
            job.kill(victim, number=number)
        job.reaches(13)
        job.process.send_signal(signal.SIGINT)
        self.assertEqual(job.end().code, 128 + signal.SIGINT)
        resumed = Job(PROGRAM, workers=1, resume=job.run).end()
        self.same(expected, resumed)
        self.assertEqual(values(alone("two_fits")), values(expected))

    def test_ctrl_c_within_a_validation(self):
        """Nothing is lost, although there was no checkpoint before."""
        job = start("held", 2)
        job.stopped_at("held")
        self.assertTrue((job.run / "checkpoints/step-00000009-g1").exists())  # in the second epoch, of 4 steps
        self.same(run("held"), Job(PROGRAM, workers=1, resume=job.run).end())

    def test_an_exception_after_an_epoch_does_not_lose_it(self):
        job = start("fails", 2)
        self.assertNotEqual(job.end().code, 0)
        self.assertTrue((job.run / "checkpoints/step-00000008-g1").exists())
        mended = {"mended": b""}
        self.same(start("fails", files=mended).end(), Job(PROGRAM, resume=job.run, files=mended).end())

    def test_a_lost_worker_and_a_lost_server(self):
        """A checkpoint at the end of an epoch, whose callbacks change weights and learning rate once more."""
        job = start("slow", 2, "checkpoint { every_steps: 4 }")  # three, and one after a callback has set weights
        for step, victim in ((2, PROGRAM), (45, "muster-server")):
            job.reaches(step)
            job.kill(victim, number=1 if victim == PROGRAM else 0)
        self.same(run("slow"), job.end())


class Values(unittest.TestCase):
    def test_the_saved_model_is_that_of_plain_keras(self):
        self.assertTrue(values(alone("again"))["again"])

    def test_steps_are_those_of_a_plain_loop(self):
        """Keras's own update of the mean gradient of the slices, over 50 steps, with dropout and batch norm."""
        def check(optimizer):
            os.environ["MUSTER_ALONE"] = "1"
            import keras_program
            import muster.keras
            from muster import _client
            from muster._alone_plan import StepPlan, seed_of
            from muster._keras_fit import seed_generators
            x, y = keras_program.data()
            keras_program.MODE = "same"
            muster.keras.Strategy()
            ours, plain = keras_program.make_model(), keras_program.make_model()
            plain.set_weights(ours.get_weights())
            for model in (ours, plain):
                model.compile(optimizer(), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
            losses = ours.fit(x, y, batch_size=20, epochs=10, verbose=0).history["loss"]
            plan = StepPlan(len(x), 20, 4, seed_of(1, 0, 7), False, False)
            statistics = [one for one in plain.non_trainable_variables if "moving" in one.path]
            for epoch in range(10):
                sums = 0.0
                for step in range(5 * epoch, 5 * epoch + 5):
                    before, after, gradients = [np.array(one) for one in statistics], [], []
                    for index in range(4):
                        rows = plan.slice_at(step, index).samples
                        for one, value in zip(statistics, before):
                            one.assign(value)
                        seed_generators(plain, seed_of(1, _client.SLICE, step, index))
                        with tf.GradientTape() as tape:
                            loss = plain.compute_loss(y=y[rows], y_pred=plain(x[rows], training=True))
                        gradients.append(tape.gradient(loss, plain.trainable_variables))
                        after.append([np.array(one) for one in statistics])
                        sums += float(loss) / 20
                    for one, *parts in zip(statistics, *after):
                        one.assign(np.mean(parts, 0))
                    plain.optimizer.apply([tf.add_n(parts) / 4 for parts in zip(*gradients)],
                                          plain.trainable_variables)
                if abs(sums - losses[epoch]) > 1e-5:
                    print("epoch", epoch, sums, losses[epoch], flush=True)
                    return False
            return all(np.abs(one - other).max() < 1e-5 for one, other in zip(ours.get_weights(), plain.get_weights()))

        for optimizer in (lambda: keras.optimizers.Adam(0.01), lambda: keras.optimizers.SGD(0.05, momentum=0.9)):
            self.assertTrue(jobs.in_fork(lambda: check(optimizer)))

    def test_the_update_in_place_is_that_of_keras(self):
        def check(make):
            from muster._keras_update import Update
            from muster._variables import Place
            rng = np.random.default_rng(1)
            shapes = [(700, 400), (7,), (), (70,)]
            start = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]

            def variables():
                with keras.name_scope("excluded"):
                    excluded = keras.Variable(start[0])
                return [excluded, *(keras.Variable(one) for one in start[1:])]

            plain, ours = variables(), variables()
            places = [Place(one, "", np.zeros(one.shape, np.float32), np.zeros(one.shape, np.float32), 0)
                      for one in ours]
            optimizer, other = make(), make()
            optimizer.build(plain)
            other.build(ours)
            update = Update(other, places, self.fail)
            for step in range(60):
                gradients = [rng.standard_normal(shape).astype(np.float32) for shape in shapes[:3]]
                if step == 30:  # what a callback may do
                    update.show()
                    before = tf.identity(ours[1])
                    for one, variables in ((optimizer, plain), (other, ours)):
                        variables[0].assign(variables[0] * 0.5)
                        one.variables[-1].assign(one.variables[-1] + 0.25)
                optimizer.apply([*gradients, None], plain)
                update.apply([*gradients, None])
            update.show()
            assert np.abs(before - ours[1]).max() > 0  # what callbacks have copied does not change
            return all(np.allclose(one, other, rtol=2e-6, atol=1e-7)
                       for one, other in zip([*plain, *optimizer.variables], [*ours, *other.variables])) and all(
                np.array_equal(place.variable, place.weights) for place in places)

        def decayed():
            optimizer = keras.optimizers.AdamW(decay, weight_decay=0.1)
            optimizer.exclude_from_weight_decay(var_names=["excluded"])
            return optimizer

        decay = keras.optimizers.schedules.ExponentialDecay(1e-2, 3, 0.9)
        for make in (lambda: keras.optimizers.SGD(0.1), lambda: keras.optimizers.SGD(decay, momentum=0.9),
                     lambda: keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
                     lambda: keras.optimizers.Adam(1e-3), decayed):
            self.assertTrue(jobs.in_fork(lambda: check(make)))

    def test_a_shuffled_stream_is_read_again(self):
        """By a process that evaluates another one's part; the passes after it are those of all."""
        def check():
            from muster._keras_data import Stream

            def stream():
                tf.keras.utils.set_random_seed(1)
                return Stream(tf.data.Dataset.range(40).shuffle(16).batch(4).prefetch(2), None, 1, lambda *_: None)

            def read(stream, numbers):
                return [stream._get(number)[0].tolist() for number in numbers]

            once, twice = stream(), stream()
            for one in (once, twice):
                one.begin_pass(0)
            first = read(once, range(10))
            same = read(twice, [7, 8, 0, 1, 9]) == [first[i] for i in (7, 8, 0, 1, 9)]
            for one in (once, twice):
                one.begin_pass(1)
            second = read(once, range(10, 20))
            return same and second != first and read(twice, range(10, 20)) == second

        self.assertTrue(jobs.in_fork(check))

    def test_options(self):
        """Each has an effect."""
        found = {mode: alone(mode) for mode in ("plain", "average", "schedule", "weights", "sample_weights", "mixed",
                                                "in_order", "loader", "stream_repeats")}
        self.assertEqual(len({values(one)["predicted"] for one in found.values()}), len(found))
        self.assertEqual(values(alone("unbuilt")), values(alone("plain")))
        self.assertIn("rate 0.000625", found["schedule"].log)


class Examples(unittest.TestCase):
    def check(self, name, *words, loses=False):
        program = str(jobs.SOURCE / "examples" / f"{name}.py")
        more = {"config": None, "options": ["--set", "checkpoint.every_steps=2"]}
        one = Job(program, *words, **more).end().ok()
        job = Job(program, *words, workers=2, **more)
        if loses:
            job.reaches(3)
            job.kill(program, number=1)  # after the launcher
        self.assertEqual(job.end().ok().hash, one.hash)
        return one

    def test_mirrored(self):
        self.assertEqual(self.check("keras_mirrored", "--scratch", "--epochs", "1").metrics[-1]["step"], 8)

    def test_multi_gpu(self):
        outcome = self.check("keras_multi_gpu", "--made-up", "--epochs", "1")
        self.assertIn("Test accuracy", outcome.log)
        self.assertTrue((outcome.run.parent / "cifar10_cnn.keras").exists())

    def test_towers(self):
        outcome = self.check("tensorflow_towers", "--made-up", "--epochs", "12", loses=True)
        self.assertTrue((outcome.run.parent / "towers.index").exists())


class Loops(unittest.TestCase):
    """muster.tensorflow."""

    def steps_of(self, body, variables=None, optimizer=None):
        """Trains alone, in a fork. Returns what the body returns, as text."""
        def train():
            os.environ["MUSTER_ALONE"] = "1"
            import muster.tensorflow
            given = variables() if variables else [tf.Variable(np.ones(3, np.float32)),
                                                   tf.Variable(np.zeros(2, np.float32), trainable=False)]
            job = muster.tensorflow.Job(batch_size=8, epochs=2)
            job.prepare(given, optimizer() if optimizer else keras.optimizers.SGD(0.5))
            for step in job.steps(16):
                for rows in step:
                    body(step, rows, given)
                step.apply()
            return given
        return train

    def test_values(self):
        """Two variables: one gets gradients, and one the program's own changes."""
        def body(step, rows, given):
            step.gradient(0.0, [tf.constant([1.0, 2.0, float(len(rows))])], accuracy=0.5)
            given[1].assign_add([1.0, float(rows[0] % 2)])

        def check():
            weights, counts = self.steps_of(body)()
            return np.allclose(weights, 1 - 4 * 0.5 * np.array([1, 2, 2])) and counts[0] == 4

        self.assertTrue(jobs.in_fork(check))

    def test_mistakes(self):
        def twice(step, rows, given):
            step.gradient(0.0, [given[0] * 0])
            step.gradient(0.0, [given[0] * 0])

        bodies = {"one call for each slice": twice, "has no gradient": lambda step, rows, given: None,
                  "trainable variables": lambda step, rows, given: step.gradient(0.0, given),
                  "expected shape": lambda step, rows, given: step.gradient(0.0, [tf.zeros(2)])}
        wrong = {"expected float32": {"variables": lambda: [tf.Variable(np.ones(3))]},
                 "no trainable": {"variables": lambda: [tf.Variable(np.ones(3, np.float32), trainable=False)]},
                 "apply_gradients": {"optimizer": lambda: "adam"}}

        def fails(words, train):
            try:
                train()
            except Exception as error:
                return words in str(error)
            return False

        for words, train in [*((words, self.steps_of(body)) for words, body in bodies.items()),
                             *((words, self.steps_of(None, **more)) for words, more in wrong.items())]:
            with self.subTest(words):
                self.assertTrue(jobs.in_fork(lambda: fails(words, train)))


class Mistakes(unittest.TestCase):
    def test_each_ends_the_program_with_its_reason(self):
        jobs.each_fails(self, alone, {"counts": "computed twice", "two_updates": "muster.tensorflow.Job",
                                      "generator": "PyDataset"})


if __name__ == "__main__":
    unittest.main()
