"""Programs on a GPU, with a device that completes everything as late as it may: the same bits as on the CPU, and
without any one wait, record or lock, other bits or an error."""

import inspect
import os
import re
import sys
import threading
import types
import unittest
import unittest.mock

import job as jobs
from job import Job, skip_without

skip_without("numpy", "torch")
import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch.utils.backend_registration  # noqa: E402

if not hasattr(torch.utils.backend_registration, "_setup_privateuseone_for_python_backend"):
    print("skipped: this version of PyTorch has no devices in Python")
    sys.exit(77)

import loop_program  # noqa: E402
import torch_program  # noqa: E402
from muster import _arithmetic, _client, _copies, _gradients  # noqa: E402

# Module, what is there, what a mistake would be.
MISTAKES = [
    (_copies, "elif arrived is not None and not arrived.query():", "elif False:"),
    (_copies, "                arrived.synchronize()", "                pass"),
    (_copies, "        self._side.wait_event(self._event())", "        pass"),
    (_copies, "        source.record_stream(self._side)", "        pass"),
    (_copies, "target.copy_(source, non_blocking=True)\n            done = self._event()",
     "done = self._event()\n            target.copy_(source, non_blocking=True)"),
    (_copies, "            torch._foreach_copy_(self._tensors, self._weights)", "            pass"),
    (_copies, "            torch._foreach_copy_(self._buffers, self._statistics)", "            pass"),
    (_copies, "        self._sums.mul_(share)", "        pass"),
    (_gradients, "        self._queue.finish()", "        pass"),
    (_copies, "        self._flat.copy_(self._memory.weights[self._all], non_blocking=True)", "        pass"),
    (_gradients, "self._queue.add(arrived, lambda: self._tell(", "self._queue.add(None, lambda: self._tell("),
    (_gradients, "self._queue.add(device.take_statistics(share), _nothing)", "device.take_statistics(share)"),
]
OF_A_DEVICE = [(_copies, "            self._brought.synchronize()", "            pass"),
               (_copies, "        self._brought = self._event()\n", "")]
OF_A_QUEUE = [(_copies, "        with self._lock:\n            self._waiting.append",
               "        if True:\n            self._waiting.append")]


def make(mistake):
    module, there, instead = mistake
    source = inspect.getsource(module)
    assert source.count(there) == 1, there
    exec(compile(source.replace(there, instead), module.__file__, "exec"), module.__dict__)
    _gradients.Device, _gradients.Queue, _gradients.Memory = _copies.Device, _copies.Queue, _copies.Memory
    sys.modules["muster.torch"].Gradients = _gradients.Gradients


def alone(program, mode, on_device=True, mistake=None):
    """With a server of its own, in a fork of this process."""
    def main():
        if mistake is not None:
            make(mistake)
        program.MODE, program.MODES = mode, mode.split("+")
        if on_device:
            import fake_device
            program.FAKE_DEVICE, program.fake_device = True, fake_device
            fake_device.watch(_client.Client)
        program.main()

    outcome = jobs.alone(main, program.__file__, mode)
    found = re.search(r"weights hash +(\w+)", outcome.log)
    outcome.hash = found[1] if found and outcome.code == 0 else None
    return outcome


class Bits(unittest.TestCase):
    def test_of_a_loop(self):
        for mode in ("plain", "weights", "last", "clipped", "own", "zeroes"):
            with self.subTest(mode):
                self.assertEqual(alone(loop_program, mode).ok().hash, alone(loop_program, mode, False).ok().hash)

    def test_of_steps(self):
        for mode in ("sgd", "adamw", "unused", "own"):  # model.to(fake) unties weights, and has no sparse tensors
            with self.subTest(mode):
                self.assertEqual(alone(torch_program, mode).ok().hash, alone(torch_program, mode, False).ok().hash)

    def test_of_two_workers(self):
        found = set()
        for more in ({}, {"MUSTER_TEST_DEVICE": "fake"}):
            with unittest.mock.patch.dict("os.environ", more):
                found.add(Job(loop_program.__file__, "plain", workers=2, config="run { slices: 4 }").end().ok().hash)
        self.assertEqual(len(found), 1)


class Mistakes(unittest.TestCase):
    def test_each_shows(self):
        expected = alone(loop_program, "plain").ok().hash
        for mistake in MISTAKES:
            with self.subTest(mistake[1]):
                outcome = alone(loop_program, "plain", mistake=mistake)
                self.assertNotEqual((outcome.code, outcome.hash), (0, expected))

    def test_settle_waits_for_the_weights(self):
        for mistake in (None, *OF_A_DEVICE):
            with self.subTest(mistake):
                self.assertEqual(jobs.in_fork(lambda: settles(mistake)), mistake is None)

    def test_calls_of_a_queue_do_not_overlap(self):
        for mistake in (None, *OF_A_QUEUE):
            with self.subTest(mistake):
                self.assertEqual(jobs.in_fork(lambda: is_serial(mistake)), mistake is None)


class Arithmetic(unittest.TestCase):
    def test_operators_that_are_not_deterministic(self):
        outcome = alone(loop_program, "warns", on_device=False)
        self.assertEqual(outcome.hash, alone(loop_program, "plain", on_device=False).ok().hash)
        self.assertGreaterEqual(outcome.log.count("index_add_cuda_"), 2)  # a warning, and in the summary

    def test_a_gpu_is_made_deterministic(self):
        for chosen, expected in ((True, [True, True, ":4096:8"]), (False, [False, False, None])):
            with self.subTest(chosen):
                self.assertTrue(jobs.in_fork(lambda: settings(chosen) == expected))

    def test_workers_that_compute_on_different_devices(self):
        job = Job(loop_program.__file__, "mixed", workers=2, config="run { slices: 4 }")
        outcome = job.end()
        self.assertNotEqual(outcome.code, 0)
        self.assertIn("FAKEGPU, torch", outcome.log)


def settings(deterministic):
    with unittest.mock.patch.object(torch.cuda, "is_available", lambda: True):
        _arithmetic.set_up(None, deterministic)
    return [torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.deterministic,
            os.environ.get("CUBLAS_WORKSPACE_CONFIG")]


def settles(mistake):
    if mistake is not None:
        make(mistake)
    import fake_device
    memory, gradient = np.arange(8, dtype=np.float32), np.zeros(8, np.float32)
    client = types.SimpleNamespace(is_alone=True, weights=lambda _: memory, gradient=lambda _: gradient)
    tensor = torch.zeros(8).to(fake_device.DEVICE)
    device = _copies.Device(fake_device.DEVICE, _copies.Memory(client, 1), [(tensor, torch.from_numpy(memory))], [])
    device.bring()
    device.settle()
    memory += 1
    return tensor.cpu().tolist() == list(range(8))


def is_serial(mistake):
    if mistake is not None:
        make(mistake)
    queue, inside, both = _copies.Queue(), threading.Event(), threading.Event()
    first = threading.Thread(target=queue.add, args=(None, lambda: (inside.set(), both.wait(1))))
    first.start()
    inside.wait()
    second = threading.Thread(target=queue.add, args=(None, both.set))
    second.start()
    second.join(0.2)
    overlapped = both.is_set()
    first.join()
    second.join()
    return not overlapped


if __name__ == "__main__":
    unittest.main()
