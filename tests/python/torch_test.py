"""muster.torch: real jobs of torch_program.py."""

import functools
import os
import pathlib
import random
import re
import signal
import unittest

import job as jobs
from job import SOURCE, Job, skip_without

skip_without("numpy", "torch")
import torch_program  # noqa: E402

PROGRAM = torch_program.__file__
LONG = "run { steps: 40 global_batch: 40 slices: 4 } checkpoint { every_steps: 5 }"


def run(mode, workers=1, **more):
    return Job(PROGRAM, mode, workers=workers, **more).end()


@functools.cache
def bits(mode, workers=1, **more):
    return run(mode, workers, **more).ok().hash


def alone(mode):
    """Without importing PyTorch again."""
    torch_program.MODE, torch_program.MODES = mode, [mode]
    return jobs.alone(torch_program.main, PROGRAM, mode)


class Bits(unittest.TestCase):
    def same(self, mode, *workers):
        hashes = {count: bits(mode, count) for count in workers}
        self.assertEqual(len(set(hashes.values())), 1, hashes)
        return hashes[workers[0]]

    def test_workers(self):
        """Dropout, batch norm, schedulers and groups with their own rates."""
        self.same("momentum", 1, 3)

    def test_random_augmentation_with_and_without_loader_workers(self):
        expected = self.same("augmented", 1, 2)
        killed = run("loader_killed", 2).ok()
        self.assertEqual(killed.hash, expected)
        self.assertIn("counts as lost: a process that works for it was killed", killed.log)

    def test_kinds_of_models(self):
        self.same("amp+channels_last+frozen+sparse+tied+twice+unused", 1, 2)

    def test_compile(self):
        self.assertEqual(bits("compile_before", 2), bits("compile_after"))

    def test_kills(self):
        expected = bits("slow", config=LONG)
        job = Job(PROGRAM, "slow", workers=2, config=LONG)
        job.reaches(5)
        job.kill("torch_program.py", number=-1)
        job.reaches(15)
        job.kill("muster-server")
        job.reaches(25)
        job.kill("muster-worker")
        self.assertEqual(job.end().ok().hash, expected)

    def test_resume_with_other_workers(self):
        expected = bits("slow", config=LONG)
        job = Job(PROGRAM, "slow", workers=1, config=LONG)
        job.reaches(12)
        job.process.send_signal(signal.SIGINT)
        self.assertEqual(job.end().code, 128 + signal.SIGINT)
        self.assertEqual(Job(PROGRAM, workers=2, resume=job.run).end().ok().hash, expected)

    def test_alone(self):
        outcome = Job(PROGRAM, "momentum", "job.txtpb", alone=True).end()
        self.assertEqual(outcome.code, 0, outcome.log)
        self.assertIn(bits("momentum"), outcome.log)


def difference(outcome):
    """Between the program's weights and those of its twin, a plain loop."""
    found = re.search(r"difference (\S+)", outcome.log)
    assert outcome.code == 0 and found, outcome.log
    return float(found[1])


def update_process(job):
    """The process that updates the weights: the only one with this rank."""
    for pid in jobs.processes(job.run, "torch_program.py"):
        if b"MUSTER_RANK=-1" in pathlib.Path(f"/proc/{pid}/environ").read_bytes():
            return pid
    raise AssertionError("no process updates the weights")


class OwnOptimizer(unittest.TestCase):
    """prepare(update="program")"""

    def same(self, outcomes):
        self.assertEqual(len({one.ok().hash for one in outcomes}), 1)

    def test_bits(self):
        """Two optimizers with groups of their own, one of them of a kind that no library has."""
        self.same(run("own_two", workers) for workers in (1, 3))

    def test_values_are_those_of_a_plain_loop(self):
        for mode in ("own", "own_two"):
            with self.subTest(mode):
                self.assertLess(difference(alone(mode)), 2e-6)

    def test_kills_and_a_resume(self):
        expected = run("own_slow", 1, config=LONG).ok()
        job = Job(PROGRAM, "own_slow", workers=2, config=LONG)
        job.reaches(6)
        job.kill("muster-worker")
        job.reaches(12)
        job.kill("muster-server")
        job.reaches(18)
        os.kill(update_process(job), signal.SIGKILL)
        job.reaches(26)
        job.process.send_signal(signal.SIGINT)
        self.assertEqual(job.end().code, 128 + signal.SIGINT)
        self.refuses_another_program(job.run)
        outcome = Job(PROGRAM, workers=1, resume=job.run).end()
        self.same([expected, outcome])
        averages = {(one.run / "average").read_text() for one in (expected, outcome)}
        self.assertEqual(len(averages), 1, averages)

    def refuses_another_program(self, run):
        os.environ["MUSTER_TEST_RENAMED"] = "1"
        try:
            outcome = Job(PROGRAM, resume=run).end()
        finally:
            del os.environ["MUSTER_TEST_RENAMED"]
        self.assertNotEqual(outcome.code, 0)
        self.assertIn("['average']", outcome.log)

    def test_mistakes(self):
        jobs.each_fails(self, alone, {"own_raises": "ZeroDivisionError: no more fuel", "own_exits": "exit code 5",
                                      "own_closure": "closure", "own_foreign": "not the model's", "own_scaler": "GradScaler",
                                      "keep": "update=\"program\""})


class Values(unittest.TestCase):
    def test_optimizers_are_those_of_torch(self):
        """The twin is a plain loop with the torch optimizer. The gradients of slices are added in
        another order, and the server's update rounds differently."""
        for mode in ("sgd", "momentum", "nesterov", "adam", "adamw", "rmsprop"):
            with self.subTest(mode):
                self.assertLess(difference(alone(mode)), 2e-6)

    def test_accuracy_is_recorded(self):
        metrics = run("momentum", 2).ok().metrics
        self.assertTrue(any("accuracy" in line.get("test_scalars", {}) for line in metrics), metrics)

    def test_keys_have_no_prefix(self):
        self.assertIn("keys shift mask conv.weight norm.weight", alone("keys").log)

    def test_unused_parameters_are_named(self):
        self.assertEqual(run("unused", 2).ok().logs.count("spare.weight, spare.bias"), 1)


class Mistakes(unittest.TestCase):
    def test_each_ends_the_job_with_its_reason(self):
        jobs.each_fails(self, alone, {
                "clip": "optimizer.clip_norm", "scaler": "bfloat16", "closure": "closure",
                "half": "float32", "lbfgs": "LBFGS", "list": "expected one torch.optim.Optimizer",
                "missing": "conv.weight is not in the optimizer", "buffer": "buffer shift",
                "buffer_anew": "buffer shift", "break": "step 2", "leaves": "ended before its run",
                "loader_exits": "exit code 5",
                "plain_backward": "step.backward", "no_backward": "step.backward",
                "caught": "has no gradient", "again": "last=False", "inner_step": "after the inner loop",
                "inner_zero": "after the inner loop", "assign": "after the inner loop",
                "cycle": "cycle_momentum=False", "state": "has state", "group": "groups have changed",
                "load": "has changed parameter", "clamp": "has changed parameter",
                "frozen_all": "frozen parameter spare.weight", "frozen_element": "frozen parameter conv.weight",
                "second": "has one"})

    def test_of_one_worker_of_two(self):
        jobs.each_fails(self, lambda mode: run(mode, 2), {
            "other_constant": "constants of their programs", "eval": "is in evaluation mode",
            "exits": "ended before its run", "raises": "ZeroDivisionError: no more fuel"})

    def test_one_of_config_and_program_sets_the_rate(self):
        outcome = run("momentum", 1, options=("--set", "learning_rate.base=0.1"))
        self.assertEqual(outcome.code, 8, outcome.log)


class Examples(unittest.TestCase):
    """Some steps on made-up data: the same bits on one worker, and on two of which one is killed. One example also
    loses its server, is stopped, and is resumed on one worker. Each start imports PyTorch, which takes most of the
    time."""

    def check(self, name, words, files, steps, batch, loses_server=False):
        folder = SOURCE / "examples"
        program = str(folder / f"{name}.py")
        config = folder / f"{name}.txtpb"
        more = {"config": config.read_text() if config.exists() else None, "files": files,
                "options": ["--steps", str(steps), "--set", f"run.global_batch={batch}",
                            "--set", f"checkpoint.every_steps={steps // 10}"]}
        hashes = {"one": Job(program, *words, **more).end().ok().hash}
        job = Job(program, *words, workers=2, **more)
        job.reaches(steps // 5)
        job.kill(name + ".py", number=2)  # after the launcher and rank 0, before their loaders
        if loses_server:
            job.reaches(2 * steps // 5)
            job.kill("muster-server")
            job.reaches(3 * steps // 5)
            job.process.send_signal(signal.SIGINT)
            self.assertEqual(job.end().code, 128 + signal.SIGINT)
            job = Job(program, workers=1, resume=job.run, files=files)
        hashes["disturbed"] = job.end().ok().hash
        self.assertEqual(len(set(hashes.values())), 1, hashes)

    def test_mnist(self):
        files = {}
        for part, count in ("train", 200), ("t10k", 40):
            pixels = random.Random(1).randbytes(16 + count * 784)
            files[f"{part}-images-idx3-ubyte"] = pixels
            files[f"{part}-labels-idx1-ubyte"] = bytes(8) + bytes(i % 10 for i in range(count))
        self.check("pytorch_mnist", ["."], files, steps=40, batch=40)

    def test_resnet18(self):
        try:
            import torchvision  # noqa: F401
        except ImportError as error:
            jobs.skip(self, str(error))
        names = [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]
        files = {name: b"".join(bytes([i]) + random.Random(i).randbytes(3072) for i in range(4)) for name in names}
        self.check("pytorch_resnet18", ["."], files, steps=10, batch=10)

    def test_transformer(self):
        text = ("All work and no play makes Jack a dull boy. " * 20).encode()
        self.check("pytorch_transformer", ["text"], {"text": text}, steps=40, batch=16, loses_server=True)


if __name__ == "__main__":
    unittest.main()
