"""Starts jobs of Python programs, for the tests of this folder."""

import atexit
import ctypes
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ["MUSTER_BIN"])
os.environ.update(MUSTER_PROGRAMS=str(BIN), PYTHONPATH=str(SOURCE / "python"))
sys.path.insert(0, os.environ["PYTHONPATH"])
CONFIG = "run { steps: 10 global_batch: 40 slices: 4 } evaluation { every_steps: 5 }"

_FOLDER = tempfile.TemporaryDirectory()  # of all jobs, until this process ends


class Outcome:
    """An ended job: its exit code, its output with logs, the logs of its programs, and its last weights' hash."""

    def __init__(self, code, log, run):
        self.code = code
        self.run = run
        self.logs = "".join(one.read_text(errors="replace") for one in sorted(run.glob("worker-*.log")))
        self.log = log + self.logs
        self.metrics = []
        if (run / "metrics.jsonl").exists():
            self.metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        self.hash = self.metrics[-1].get("weights_hash") if self.metrics else None

    def ok(self):
        assert self.code == 0 and self.hash, f"exit code {self.code}\n{self.log}"
        return self


class Job:
    """A running `muster launch` of a program of this folder."""

    def __init__(self, program, *words, workers=1, files=None, config=CONFIG, options=(), resume=None, alone=False):
        folder = pathlib.Path(tempfile.mkdtemp(dir=_FOLDER.name))
        self.run = resume or folder / "run"
        # On a busy machine it may take minutes until all processes have imported PyTorch.
        if config is None:
            named, options = [], ["--set", "deadlines.start_s=400", *options]
        else:
            named = [str(folder / "job.txtpb")]
            limit = " deadlines { start_s: 400 }" if "deadlines" not in config else ""
            (folder / "job.txtpb").write_text(config + limit)
        for name, content in (files or {}).items():
            (folder / name).write_bytes(content)
        self.log_path = folder / "log"
        environment = dict(os.environ, MUSTER_TEST_RUN=str(self.run))
        if not alone:
            del environment["PYTHONPATH"]  # muster launch finds the folder beside its programs
        command = [sys.executable, program, *words]
        if not alone:
            start = ["--resume", str(resume)] if resume else [*named, "--run-dir", str(self.run)]
            command = [BIN / "muster", "launch", *start, "--workers", str(workers), *options,
                       *([] if resume else ["--", *command])]
        with open(self.log_path, "w") as log:
            self.process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log,
                                            stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)

    def reaches(self, step, seconds=400):
        """Waits until the run is at this step."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.process.poll() is None:
            status = subprocess.run([BIN / "muster", "top", "--json", self.run], capture_output=True, timeout=60)
            if status.returncode == 0 and int(json.loads(status.stdout)["progress"]["at"].get("step", 0)) >= step:
                return
            time.sleep(0.1)
        self.process.kill()
        raise AssertionError(f"step {step} was not reached: {self.text()}")

    def stopped_at(self, name):
        """Ends the job by Ctrl-C when its program has written this file."""
        end = time.monotonic() + 400
        while not (self.run.parent / name).exists():
            assert self.process.poll() is None and time.monotonic() < end, self.text()
            time.sleep(0.05)
        self.process.send_signal(signal.SIGINT)
        assert self.end().code == 128 + signal.SIGINT, self.text()

    def kill(self, *words, number=0):
        os.kill(processes(self.run, *words)[number], signal.SIGKILL)

    def text(self):
        return self.log_path.read_text(errors="replace")

    def end(self, seconds=500):
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"the job did not end: {self.text()}") from None
        return _ended(code, self.text(), self.run)


def alone(main, program, *words):
    """A program that trains alone, with a server of its own, in a fork of this process, which need not import
    PyTorch again."""
    folder = pathlib.Path(tempfile.mkdtemp(dir=_FOLDER.name))
    (folder / "job.txtpb").write_text(CONFIG)
    child = os.fork()
    if child == 0:
        _train(main, folder, [program, *words, "job.txtpb"])
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return _ended(code, (folder / "log").read_text(errors="replace"), folder)


def in_fork(function):
    """Whether a function returns true, in a process whose changes are its own."""
    child = os.fork()
    if child == 0:
        signal.alarm(400)
        try:
            os._exit(0 if function() else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _train(main, folder, arguments):
    signal.alarm(400)
    atexit._clear()  # what was registered is the parent's
    os.chdir(folder)
    os.environ["MUSTER_TEST_RUN"] = str(folder)
    sys.argv = arguments
    sys.orig_argv = [sys.executable, *arguments]
    log = os.open("log", os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    code = 1
    try:
        main()
        code = 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
    atexit._run_exitfuncs()
    sys.stdout.flush()
    ctypes.CDLL(None).exit(code)  # as Python itself ends


def processes(run, *words):
    """The processes of this run whose arguments contain these words, from the oldest: numbers of processes begin
    anew at some time."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            arguments = (entry / "cmdline").read_bytes().decode(errors="replace")
            environment = (entry / "environ").read_bytes().decode(errors="replace")
            began = int((entry / "stat").read_text().rpartition(")")[2].split()[19])
        except OSError:
            continue
        if str(run) in environment and all(word in arguments for word in words):
            found.append((began, int(entry.name)))
    return [pid for _, pid in sorted(found)]


def _ended(code, log, run):
    outcome = Outcome(code, log, run)
    deadline = time.monotonic() + 10
    while processes(run, "muster") and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not processes(run, "muster"), f"processes are left: {processes(run, 'muster')}\n{log}"
    return outcome


def each_fails(test, run, reasons):
    """The program ends its job in each of these modes, with these words."""
    for mode, words in reasons.items():
        with test.subTest(mode):
            outcome = run(mode)
            test.assertNotEqual(outcome.code, 0)
            test.assertIn(words, outcome.log)


def skip(test, reason):
    """Skips one test of a program; scripts/test.sh lists this line."""
    print(f"skipped: {reason}", flush=True)
    test.skipTest(reason)


def skip_without(*modules):
    """Ends this test program with 77, which ctest counts as skipped, if a module is missing."""
    try:
        for module in modules:
            __import__(module)
    except ImportError as error:
        print(f"skipped: {error}")
        sys.exit(77)
