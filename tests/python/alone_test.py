"""Training in one process, without Muster's programs (muster/_alone.py)."""

import contextlib
import functools
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import unittest
import unittest.mock

from job import Job, skip_without

skip_without("numpy", "torch")
import numpy as np  # noqa: E402

import alone_program  # noqa: E402
import torch_program  # noqa: E402
from muster import UsageError, _client  # noqa: E402
from muster._alone import ABSENT, COMPUTE, VALUE, AloneClient  # noqa: E402
from muster._alone_plan import StepPlan  # noqa: E402
from muster._alone_update import LossScale, TreeSum, Updater, _sum  # noqa: E402

PROGRAM = alone_program.__file__
MODES = ("sgd", "momentum", "nesterov", "adam", "adamw", "rmsprop", "clip", "own", "own_two", "scaled", "overflow",
         "own_overflow")


@functools.cache
def alone(mode):
    """The weights, the client, the slices, and what the run prints."""
    os.environ["MUSTER_ALONE"] = "1"
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
        model, job, slices = alone_program.train(mode)
    state = {name: tensor.detach().numpy().tobytes() for name, tensor in model.state_dict().items()}
    return state, job._client, slices, text.getvalue()


@functools.cache
def launched(mode, workers):
    options = ["--set", "run.log_every_steps=4"]
    return Job(PROGRAM, mode, workers=workers, config=None, options=options).end().ok()


def tensors(run):
    """Those of model.safetensors, as bytes."""
    file = (run / "model.safetensors").read_bytes()
    begin = 8 + int.from_bytes(file[:8], "little")
    header = json.loads(file[8:begin])
    header.pop("__metadata__", None)
    return {name: file[begin + one["data_offsets"][0]:begin + one["data_offsets"][1]]
            for name, one in header.items()}


class Bits(unittest.TestCase):
    def test_weights_are_those_of_a_job(self):
        torch_program.without_compiler()
        for mode in MODES:
            for workers in (1, 2):
                with self.subTest(mode, workers=workers):
                    expected = tensors(launched(mode, workers).run)
                    state = alone(mode)[0]
                    self.assertGreater(len(expected), 5)
                    self.assertEqual({name: state[name] for name in expected}, expected)

    def test_a_loss_scale_keeps_the_bits(self):
        self.assertEqual(alone("scaled")[0], alone("momentum")[0])
        self.assertEqual(alone("scaled")[1]._scale.value, 65536)
        config = Job(PROGRAM, "momentum", config=None, options=["--set", "worker.precision=FP16"]).end().ok()
        self.assertEqual(tensors(config.run), tensors(launched("momentum", 1).run))
        self.assertEqual(config.metrics[-1]["loss_scale"], 65536)
        for mode in ("overflow", "own_overflow"):
            last = launched(mode, 2).metrics[-1]
            self.assertEqual((last["loss_scale"], last["skipped_steps"]), (32768, 1))
            self.assertEqual(alone(mode)[1]._scale.value, 32768)

    def test_slices_are_those_of_a_job(self):
        found = re.search(r"slices (.*)", launched("sgd", 1).logs)[1]
        self.assertEqual(str(alone("sgd")[2]), found)

    def test_means_are_those_of_a_job(self):
        metrics = launched("sgd", 2).metrics
        _, client, _, text = alone("sgd")
        for epoch in range(alone_program.EPOCHS):
            line = next(one for one in metrics if one["step"] == 4 * (epoch + 1))
            _, value = client.ask(f"epoch:{4 * (epoch + 1)}", 0, False)
            self.assertEqual(json.loads(value), {"loss": line["train_loss"], **line["scalars"]})
        last = metrics[-1]
        self.assertIn(f"evaluation  epoch 2.00  step 8  test loss {last['test_loss']:.4f}  "
                      f"accuracy {last['test_scalars']['accuracy']:.4g}\n", text)
        self.assertRegex(text, rf"Completed: 8 steps, 192 samples in \S+ s  training loss {last['train_loss']:.4f}")


class Parts(unittest.TestCase):
    def test_loss_scale(self):
        scale, finite, infinite = LossScale(), np.zeros(2, np.float32), np.float32([0, np.inf])
        for _ in range(1999):
            self.assertFalse(scale.skips(finite))
        self.assertTrue(scale.skips(infinite))
        self.assertEqual(scale.value, 32768)
        for _ in range(2000):
            self.assertFalse(scale.skips(finite))
        self.assertEqual(scale.value, 65536)
        while scale.value > 0.5:
            self.assertTrue(scale.skips(infinite))
        with self.assertRaisesRegex(_client.Error, "the loss scale is only 0.5"):
            scale.skips(infinite)

    def test_tree(self):
        """((0 + 1) + (2 + 3)) + (4 + 5), without slices that have no samples."""
        values = [np.float32(10.0**power) / np.float32(3) for power in (0, 7, -3, 8, 2, -5)]
        for missing in range(64):
            tree, level = TreeSum(), []
            gradient = np.empty(1, np.float32)
            for i, value in enumerate(values):
                gradient[0] = value
                is_missing = missing >> i & 1
                tree.add(i, None if is_missing else gradient)
                level.append(None if is_missing else value)
            while len(level) > 1:
                level = [a if b is None else b if a is None else a + b
                         for a, b in zip(level[::2], level[1::2] + [None] * (len(level) % 2))]
            if level[0] is not None:
                self.assertEqual(tree.take()[0], level[0])

    def test_sum_of_squares_has_an_order(self):
        values = np.random.default_rng(1).random(1000) * 10.0**np.arange(1000) ** 0.1

        def plain(values):
            if len(values) > 64:
                return plain(values[:len(values) // 2]) + plain(values[len(values) // 2:])
            total = 0.0
            for one in values:
                total += one
            return total

        self.assertEqual(_sum(values), plain(values.tolist()))

    def test_drop_last_and_in_order(self):
        plan = StepPlan(10, 4, 2, 1, drop_last=True, in_order=True)
        self.assertEqual((plan.steps_per_epoch, plan.samples_per_epoch), (2, 8))
        found = [plan.slice_at(step, index).samples.tolist() for step in (0, 1, 2) for index in (0, 1)]
        self.assertEqual(found, [[0, 1], [2, 3], [4, 5], [6, 7], [0, 1], [2, 3]])
        self.assertEqual(StepPlan(10, 4, 2, 1, False, True).batch_at(2), 2)

    def client(self, epochs=2):
        client = AloneClient()
        client.add_variable("w", [2])
        client.set_optimizer("type: SGD", 1)
        client.set_run(4, epochs)
        with contextlib.redirect_stdout(io.StringIO()):
            client.join(8, 3, 3)
        return client

    def test_values_and_stop(self):
        client = self.client()
        self.assertEqual(client.ask("a", 0, False)[0], ABSENT)
        self.assertEqual(client.ask("a", 0, True)[0], COMPUTE)
        client.tell("a", 0, b"1")
        self.assertEqual(client.ask("a", 0, True), (VALUE, b"1"))
        kinds = []
        with contextlib.redirect_stdout(io.StringIO()) as text:
            while (work := client.next()).kind != _client.END:
                kinds.append(work.kind)
                if work.kind == _client.SLICE and work.step == 1:
                    client.tell("stop", 1, b"enough")
                client.gradient(0)[:] = 1
                client.report(1.0)
                client.done()
        ends = [_client.STEP_END, _client.SLICE, _client.VALIDATION_BLOCK, _client.TEST_BLOCK]
        self.assertEqual(kinds, [_client.SLICE] * 4 + ends)
        self.assertEqual((work.step, client.weights(0).tolist()), (1, [-4, -4]))
        self.assertIn("Completed: 1 steps, 4 samples", text.getvalue())

    def test_mistakes(self):
        for text in ("type: SGD ema_decay: 0.9", "type: LION", "type: PROGRAM clip_norm: 1"):
            self.assertRaisesRegex(UsageError, "muster launch", Updater, text)
        with unittest.mock.patch.dict(os.environ, MUSTER_ALONE="1"):
            self.assertRaisesRegex(UsageError, 'expected "fp16"', alone_program.muster.torch.Job, precision="bf16")
        client = AloneClient()
        client.set_arithmetic("CPU")
        client.set_run(4, 1)
        self.assertRaisesRegex(UsageError, "muster launch", client.join, 8, 0, 0)
        client = self.client()
        client.next()
        self.assertRaisesRegex(_client.Error, "is nan", client.report, float("nan"))


WINDOWS = """
import ctypes, os, signal, socket, sys
import torch, torch_program
torch_program.without_compiler()
plain = ctypes.CDLL
def library(name, *words):
    if name is None:
        raise TypeError("argument of type 'NoneType' is not iterable")
    return plain(name, *words)
ctypes.CDLL = library
for module, names in ((signal, "SIGKILL SIGHUP SIGCHLD"), (os, "fork waitid geteuid"), (socket, "AF_UNIX SO_PEERCRED")):
    for name in names.split():
        delattr(module, name)
for name in [name for name in sys.modules if name.startswith("muster")]:
    del sys.modules[name]
sys.platform = "win32"
import alone_program
print("slices", alone_program.train("adam")[2])
raise ZeroDivisionError("no more fuel")
"""


class Programs(unittest.TestCase):
    def run_without(self, *words, **environment):
        here = str(pathlib.Path(PROGRAM).parent)
        path = os.pathsep.join([here, os.environ["PYTHONPATH"]])
        more = {"MUSTER_PROGRAMS": "/nowhere", "MUSTER_ALONE": "", "PYTHONPATH": path, **environment}
        ended = subprocess.run([sys.executable, *words], env={**os.environ, **more}, timeout=400, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return ended.returncode, ended.stdout

    def test_without_programs_and_what_other_systems_lack(self):
        code, text = self.run_without("-c", WINDOWS)
        self.assertEqual(code, 1, text)
        self.assertEqual(text.count("muster: Muster's programs are not here (there is no /nowhere/muster): this "
                                    "process trains alone, without checkpoints"), 1, text)
        self.assertIn(f"slices {alone('adam')[2]}", text)
        self.assertTrue(text.endswith("ZeroDivisionError: no more fuel\n"), text)

    def test_with_programs(self):
        code, text = self.run_without(PROGRAM, "sgd", MUSTER_PROGRAMS=os.environ["MUSTER_PROGRAMS"])
        self.assertEqual(code, 1)
        self.assertIn("set MUSTER_ALONE=1 to train in this process alone", text)


if __name__ == "__main__":
    unittest.main()
