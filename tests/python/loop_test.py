"""The loop of a plain PyTorch script: real jobs of loop_program.py."""

import functools
import json
import re
import signal
import unittest

import job as jobs
from job import Job, skip_without

skip_without("numpy", "torch")
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

import loop_program  # noqa: E402

PROGRAM = loop_program.__file__


def start(mode, workers=1, settings="", **more):
    return Job(PROGRAM, mode, workers=workers, config=f"run {{ slices: 4 }} {settings}", **more)


@functools.cache
def run(mode, workers=1, settings=""):
    return start(mode, workers, settings).end().ok()


def alone(mode):
    """Without importing PyTorch again."""
    loop_program.MODE = mode
    return jobs.alone(loop_program.main, PROGRAM, mode)


def values(outcome):
    """What every process that was there at the end has seen of all epochs."""
    found = set(re.findall(r"^values (.*)", outcome.logs, re.M))
    assert len(found) == 1, outcome.log
    return found.pop()


class Bits(unittest.TestCase):
    def same(self, expected, *others):
        for other in others:
            self.assertEqual(other.ok().hash, expected.hash)
            self.assertEqual(values(other), values(expected))

    def test_workers(self):
        """Schedulers of both kinds, results of once, means of epochs and random numbers between epochs."""
        two = run("plain", 2)
        self.same(run("plain"), two, run("plain", 3), run("zeroes"), run("parallel"))
        shown = (two.run / "worker-0.log").read_text()  # whoever has tested
        self.assertEqual(shown.count("tests epoch"), loop_program.EPOCHS)

    def test_a_script_with_its_own_calls(self):
        """from muster.torch import job, loss.backward() and torch.save."""
        one, two = run("script"), run("script", 2)
        self.assertEqual({one.hash, two.hash}, {run("plain").hash})
        self.assertEqual(values(one), values(two))

    def test_an_optimizer_of_its_own_process(self):
        for mode in ("own", "cycles"):
            self.same(run(mode), run(mode, 2))

    def test_options(self):
        for mode in ("clipped", "last", "weights", "drop_last", "in_order", "subset"):
            with self.subTest(mode):
                self.same(run(mode), run(mode, 2))
        self.assertIn(f"seen {list(range(104))} steps 4", run("in_order").logs)
        self.assertIn("steps 3", run("drop_last").logs)
        seen = json.loads(re.search(r"^seen (.*) steps 2$", run("subset").logs, re.M)[1])
        self.assertEqual(sorted(seen), list(range(8, 72)))
        self.assertEqual(run("drop_last").metrics[-1]["step"], 15)
        self.assertEqual(len({run(mode).hash for mode in ("plain", "clipped", "weights", "in_order")}), 4)

    def test_gradients_in_16_bits(self):
        """The helper rounds them in the program's memory."""
        settings = "cluster { wire_dtype: BF16 }"
        self.same(run("plain", 1, settings), run("plain", 2, settings))

    def test_kills_and_a_resume(self):
        job = start("slow", 2, "checkpoint { every_steps: 2 }")
        for step, victim in ((3, "loop_program.py"), (5, "muster-server"), (8, "muster-worker")):
            job.reaches(step)
            job.kill(victim, number=-1)
        job.reaches(11)
        job.process.send_signal(signal.SIGINT)
        self.assertEqual(job.end().code, 128 + signal.SIGINT)
        self.same(run("plain"), Job(PROGRAM, workers=1, resume=job.run).end())
        self.assertIn("goes through what the run has done before", (job.run / "worker-0.log").read_text())

    def test_ctrl_c_while_processes_wait_for_once(self):
        """The process that updates gives its state, which no checkpoint had."""
        job = start("waits", 2)
        job.stopped_at("waits-0")
        resumed = Job(PROGRAM, workers=1, resume=job.run).end()
        self.same(run("own"), resumed)
        self.assertEqual(len(list(job.run.parent.glob("test1-*"))), 1)

    def test_a_process_dies_in_once_and_another_is_slow(self):
        outcome = start("dies", 2, "deadlines { step_s: 1 start_s: 400 }").end()
        self.same(run("plain"), outcome)
        tests = {epoch: len(list(outcome.run.parent.glob(f"test{epoch}-*"))) for epoch in range(5)}
        self.assertEqual(tests, {0: 1, 1: 2, 2: 1, 3: 1, 4: 1})

    def test_a_process_joins_just_before_the_end(self):
        outcome = start("late", 2).end()
        self.same(run("plain"), outcome)
        self.assertIn("had caught up", (outcome.run / "worker-1.log").read_text())

    def test_stop(self):
        stopped = run("stops", 2)
        self.assertEqual(stopped.metrics[-1]["step"], 9)
        self.assertEqual(run("stops").hash, stopped.hash)
        resumed = Job(PROGRAM, workers=1, resume=run("stops").run).end()
        self.assertEqual(resumed.ok().hash, stopped.hash)


class Values(unittest.TestCase):
    def test_weights_are_those_of_a_plain_loop(self):
        """One step of a mean over targets, whose number varies from slice to slice."""
        loop_program.MODE = "weights"
        x, y = loop_program.data()
        torch.manual_seed(1)
        model = loop_program.Model()
        F.cross_entropy(model(x), torch.where(y > 0, y, -100)).backward()
        for mode in ("weights", "weights_in_two_phases"):
            outcome = start(mode, options=["--epochs", "1", "--set", "run.global_batch=96"]).end().ok()
            saved = torch.load(outcome.run.parent / "last.pt", weights_only=True)["model"]
            for name, one in model.named_parameters():
                self.assertLess((one - 0.005 * one.grad - saved[name]).abs().max().item(), 1e-6, name)


class Mistakes(unittest.TestCase):
    def test_each_ends_the_job_with_its_reason(self):
        jobs.each_fails(self, alone, {
                "autograd": "job.backward", "two_losses": "again in a slice", "sum": "reduction",
                "ignores": "weight=", "no_step": "no optimizer.step()", "accumulates": "--slices",
                "steps_twice": "called twice", "sometimes": "condition", "arguments": "got arguments",
                "averages": "AveragedModel", "own_average": "within a step", "calls_again": "within a step",
                "once_in_body": "outside of the loop", "saves_in_body": "outside of the loop",
                "peeks": "job.once(function", "copies": "job.once(function", "clones": "job.once(function",
                "norms": "job.once(function", "assigns": "assigns EPOCHS", "not_returned": "that prepare returned",
                "leaves": "left the loop", "leaves_epochs": "job.stop() before", "twice": "second loop",
                "masked": "weight=", "nested": "within a loop over it", "no_batches": "had no loop",
                "more": "begins one more", "clip": "clip_norm", "counts": "computed twice",
                "own_numbers": "computed twice", "object": "cannot be sent",
                "weighted_sampler": "WeightedRandomSampler", "distributed_sampler": "remove it",
                "stream": "IterableDataset", "two_models": "got Model as optimizer", "lbfgs": "closure"})

    def test_one_decides_otherwise(self):
        for mode, words in (("stops_alone", "stops"), ("saves_alone", "save other.pt")):
            outcome = start(mode, 2).end()
            self.assertNotEqual(outcome.code, 0)
            self.assertIn(words, outcome.log)


if __name__ == "__main__":
    unittest.main()
