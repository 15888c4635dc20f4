"""muster.numpy, and what it shares with muster.torch."""

import importlib.util
import multiprocessing
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

from job import BIN, SOURCE, Job, skip, skip_without

skip_without("numpy")
from muster import _lost  # noqa: E402

PROGRAM = str(pathlib.Path(__file__).with_name("numpy_program.py"))
CONFIG = ("run { epochs: 20 global_batch: 40 slices: 4 } optimizer { type: MOMENTUM } "
          "learning_rate { base: 0.05 } evaluation { every_epochs: 5 }")

EVERY_STEP = ("--set", "checkpoint.every_steps=10", "--set", "run.log_every_steps=5")
AVERAGE = ("--set", "optimizer.ema_decay=0.9", "--set", "evaluation.use_ema=true")


def run(mode, workers=1, **more):
    return Job(PROGRAM, mode, workers=workers, config=CONFIG, **more).end()


class Numpy(unittest.TestCase):
    def test_fits_with_the_same_bits(self):
        outcomes = [run("fit", workers).ok() for workers in (1, 2, 4)]
        self.assertEqual(len({one.hash for one in outcomes}), 1)
        for one in outcomes:
            fit = [float(number) for number in re.search(r"y = (\S+) a \+ (\S+) b \+ (\S+)", one.log).groups()]
            for number, expected in zip(fit, (2, -3, 1)):
                self.assertAlmostEqual(number, expected, delta=0.05)
            self.assertLess(one.metrics[-1]["test_loss"], 1e-3)

    def test_without_a_config(self):
        """The program says batch and length, also when the run goes on with other workers. A config counts more."""
        expected = run("fit").ok().hash
        settings = [word for one in ("optimizer.type=MOMENTUM", "learning_rate.base=0.05", "evaluation.every_epochs=5")
                    for word in ("--set", one)]
        first = Job(PROGRAM, "says", workers=2, config=None, options=[*settings, "--epochs", "12"]).end().ok()
        self.assertEqual(first.metrics[-1]["step"], 60)
        whole = Job(PROGRAM, "says", workers=4, config=None, options=settings).end().ok()
        self.assertEqual(whole.hash, expected)
        longer = Job(PROGRAM, "says", workers=3, resume=first.run, options=["--epochs", "20"]).end().ok()
        self.assertEqual(longer.hash, expected)
        more = run("says more").ok()
        self.assertEqual(more.hash, expected)
        self.assertIn("run.epochs=30", more.log)
        again = Job(PROGRAM, "says more", workers=2, config=(whole.run / "config.txtpb").read_text()).end().ok()
        self.assertEqual(again.hash, expected)
        lost = Job(PROGRAM, "slow says", workers=2, config=None, options=[*settings, *EVERY_STEP])
        lost.reaches(20)
        lost.kill("muster-server")
        self.assertEqual(lost.end().ok().hash, expected)
        silent = Job(PROGRAM, "fit", config=None, options=settings).end()
        self.assertEqual(silent.code, 8, silent.log)
        self.assertIn("run.global_batch", silent.log)

    def test_plans(self):
        """The program says that the last batch is dropped, and the order. Whoever resumes, repeats or verifies the run
        follows it; a config counts more."""
        whole = run("plan", 2).ok()
        self.assertEqual((whole.metrics[-1]["step"], whole.metrics[-1]["epoch"]), (80, 20))
        first = run("plan", options=("--epochs", "12")).ok()
        self.assertEqual(Job(PROGRAM, "plan", resume=first.run, options=["--epochs", "20"]).end().ok().hash, whole.hash)
        again = Job(PROGRAM, "plan", workers=4, config=(whole.run / "config.txtpb").read_text()).end().ok()
        self.assertEqual(again.hash, whole.hash)
        verified = subprocess.run([BIN / "muster", "verify", whole.run], capture_output=True, text=True, timeout=400)
        self.assertEqual(verified.returncode, 0, verified.stdout + verified.stderr)
        kept = run("plan", options=("--set", "run.drop_last=false")).ok()
        self.assertEqual(kept.metrics[-1]["step"], 100)
        self.assertIn("says run.drop_last=true, but the run has false", kept.log)
        other = run("plans", 2)
        self.assertEqual(other.code, 8, other.log)
        self.assertIn("contents or order", other.log)
        large = run("plan", options=("--set", "run.global_batch=191"))
        self.assertNotEqual(large.code, 0)
        self.assertIn("every epoch would be empty", large.log)

    def test_what_bits_depend_on(self):
        """Programs that compute in another way are refused, and a resumed run warns. What may give other bits is named
        once, and at the end of each run."""
        refused = run("arithmetic", 2)
        self.assertEqual(refused.code, 8, refused.log)
        self.assertRegex(refused.log, r'rank (0|1) .* computes with "CPU, version \1", but rank \d .*--devices')
        self.addCleanup(os.environ.pop, "MUSTER_TEST_ARITHMETIC", None)
        os.environ["MUSTER_TEST_ARITHMETIC"] = "CPU, one"
        first = run("arithmetic", 2).ok()
        self.assertEqual(first.hash, run("fit").hash)
        self.assertEqual(len(re.findall(r"Warning: rank \d: scatter: process \d+: other runs", first.log)), 1)
        os.environ["MUSTER_TEST_ARITHMETIC"] = "CPU, two"
        longer = Job(PROGRAM, "arithmetic", resume=first.run, options=["--epochs", "22"]).end().ok()
        self.assertIn('the workers computed with "CPU, one" before and with "CPU, two" now', longer.log)
        for outcome in (first, longer):
            self.assertIn("may differ in other runs, because of scatter", outcome.log)
            self.assertEqual(outcome.metrics[-1]["other_bits"], ["scatter"])

    def test_sensors_of_its_gpu(self):
        driver = BIN.parent / "tests" / "cli" / "fake_driver"  # see tests/cli/gpu/fake_cards.h
        if not (driver / "libnvidia-ml.so.1").exists():
            self.skipTest("there is no stand-in for NVML: build fake_nvml")
        uuid = f"GPU-{os.getpid():08x}-0000-0000-0000-000000000000"
        with tempfile.NamedTemporaryFile("w") as cards, \
                unittest.mock.patch.dict(os.environ, FAKE_CARDS=cards.name, LD_LIBRARY_PATH=str(driver)):
            os.environ.pop("CUDA_VISIBLE_DEVICES", None)
            cards.write(f"uuid={uuid} util=2 used=1000 temp=51 power=300\n")
            cards.flush()
            last = run("fit", options=("--devices", "0")).ok().metrics[-1]
        self.assertEqual([last[f"gpu_{name}"] for name in ("memory_mb", "utilization", "temperature_c", "power_w")],
                         [1048.576, 0.02, 51, 300])

    def test_a_step_ends_once_with_the_weights_of_the_next(self):
        """Also before an evaluation, and around one of a lost process whose slices come one by one."""
        expected = run("fit").ok().hash
        for mode, workers, options in (("alone", 1, ()), ("dies", 2, ()), ("alone", 1, AVERAGE)):
            self.assertEqual(run(mode, workers, options=options).ok().hash, expected)

    def test_one_that_is_too_slow_in_the_last_step(self):
        outcome = run("late", 2, options=("--set", "deadlines.step_s=2")).ok()
        self.assertEqual(outcome.hash, run("fit").hash)
        self.assertIn("rank 1 saw 100 steps", outcome.log)

    def test_values_that_one_process_computes(self):
        """Also if it is killed meanwhile, after the last step, and when the run is resumed."""
        def values(logs):
            return set(re.findall(r"^(\w+:\d+) = (.*)$", logs, re.MULTILINE))

        first = run("once", 3).ok()
        self.assertEqual(first.hash, run("fit").hash)
        self.assertEqual({key for key, _ in values(first.logs)},
                         {f"acc:{epoch}" for epoch in range(20)} | {f"epoch:{5 * epoch + 5}" for epoch in range(20)})
        self.assertEqual(len(values(first.logs)), 40, "processes got different values")
        self.assertEqual(first.logs.count("computes acc:2\n"), 2)
        longer = Job(PROGRAM, "once", workers=2, resume=first.run, options=["--epochs", "22"]).end().ok()
        last = "acc:19"  # may have been told after the last checkpoint
        self.assertLess({one for one in values(first.logs) if one[0] != last}, values(longer.logs))
        again = set(re.findall("from 100: computes (.*)", longer.logs))
        self.assertEqual(again - {last}, {"acc:20", "acc:21"})
        alone = {one for one in values(run("once").ok().logs) if "epoch" in one[0]}
        self.assertEqual(alone, {one for one in values(first.logs) if "epoch" in one[0]})

    def test_a_program_ends_the_run(self):
        """At the same weights with and without evaluations, and once more when the run is resumed."""
        expected = run("fit", options=("--epochs", "5")).ok().hash
        no_evaluation = ("--set", "evaluation.every_epochs=0", "--set", "evaluation.skip_final=true")
        for mode, workers, options in (("stops", 1, ()), ("stops", 3, ()), ("stops and exits", 2, no_evaluation)):
            with self.subTest(mode, workers=workers):
                outcome = run(mode, workers, options=options).ok()
                self.assertEqual(outcome.hash, expected)
                self.assertEqual(outcome.metrics[-1]["stop_reason"], "the program ended it: enough")
        again = Job(PROGRAM, "stops and exits", workers=1, resume=outcome.run, options=["--epochs", "30"]).end().ok()
        self.assertEqual(again.hash, expected)

    def test_errors_of_killed_helpers(self):
        exits = "DataLoader worker (pid(s) 7, 9) exited unexpectedly"
        self.assertTrue(_lost.is_killed(RuntimeError(exits)))
        self.assertFalse(_lost.is_killed(RuntimeError(exits + " with exit code 1.")))
        self.assertFalse(_lost.is_killed(EOFError()))
        other = subprocess.Popen(["true"])  # ends first
        here, there = multiprocessing.Pipe()
        child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(1000,))
        child.start()
        there.close()
        child.kill()
        with self.assertRaises(EOFError) as raised:
            here.recv()
        self.assertTrue(_lost.is_killed(raised.exception))
        child.join()
        other.wait()

    def test_ctrl_c_does_not_interrupt_a_step(self):
        outcome = run("interrupted", 2).ok()
        self.assertEqual(outcome.hash, run("fit").hash)
        self.assertIn("rank 1 finishes its step", outcome.log)

    def test_alone_it_has_a_server_of_its_own(self):
        outcome = Job(PROGRAM, "fit", "job.txtpb", config=CONFIG, alone=True).end()
        self.assertEqual(outcome.code, 0, outcome.log)
        self.assertIn(run("fit").ok().hash, outcome.log)

    def test_example(self):
        config = (SOURCE / "examples" / "numpy_linear.txtpb").read_text()
        outcome = Job(str(SOURCE / "examples" / "numpy_linear.py"), workers=2, config=config).end().ok()
        self.assertLess(outcome.metrics[-1]["test_loss"], 1e-3)

    def test_beside_other_libraries_in_any_order(self):
        """Each brings its own protobuf, threads and C++ library."""
        others = [name for name in ("torch", "tensorflow", "pyarrow") if importlib.util.find_spec(name)]
        if not others:
            skip(self, "torch, tensorflow and pyarrow are missing")
        expected = run("fit").ok().hash
        ours = "muster.numpy"
        for order in ([ours, *others], [*others, ours], [*reversed(others), ours], [others[0], ours, *others[1:]]):
            with self.subTest(order):
                code = f"import {', '.join(order)}, runpy; runpy.run_path({PROGRAM!r})"
                outcome = Job("-c", code, "fit", config=CONFIG).end().ok()
                self.assertEqual(outcome.hash, expected)

    def test_mistakes(self):
        for mode, words in {"missing": "['b', 'w']", "shape": "expected shape ()",
                            "write": "read-only"}.items():
            with self.subTest(mode):
                outcome = run(mode, 2)
                self.assertNotEqual(outcome.code, 0)
                self.assertIn(words, outcome.log)

    def test_without_a_job(self):
        environment = dict(os.environ, PYTHONPATH=str(SOURCE / "python"), MUSTER_PROGRAMS=str(BIN))
        for words in ((), ("no-such-config",)):
            done = subprocess.run([sys.executable, PROGRAM, "fit", *words], env=environment, text=True,
                                  stderr=subprocess.PIPE, timeout=60)
            self.assertEqual(done.returncode, 1)
            self.assertIn("UsageError", done.stderr)


if __name__ == "__main__":
    unittest.main()
