"""What muster.torch and muster.numpy share: the loop over steps, slices and evaluations."""

import atexit
import operator
import os
import random
import signal
import sys
import threading
import zlib
from typing import Any, Callable, Dict, Iterator, List, Mapping, NoReturn, Optional, Tuple

import numpy as np

from muster import _client, _private
from muster._alone import make_client
from muster._client import Client, UsageError, Work
from muster._lost import is_killed, is_of_environment
from muster._shared import Shared, assigned_outside, generators, run_seed


class Step:
    """One training step. Iterate over it to get this process's slices, and complete each one.

    ``number`` and ``epoch`` count from 0; Muster's messages count from 1. ``ends_epoch`` is true in
    the last step of an epoch.
    ``is_missed`` is true if this process has no slice of the step: it came later, or the run was
    resumed after it. The body of the loop still runs, so that counters and schedulers stay right.
    In the process that updates the weights, it is false in the steps that it updates.
    ``is_check`` is true while the inner loop gives a slice only to compute it twice and to compare
    the results: the first one of this process, and one in 1,000 steps.
    """

    def __init__(self, job: "Job", number: int) -> None:
        self._job = job
        self.number = number
        self.epoch = number // job.steps_per_epoch
        self.ends_epoch = (number + 1) % job.steps_per_epoch == 0
        self.is_missed = job._pending is None or job._pending.step != number
        self.is_check = False

    def __iter__(self) -> Iterator[Any]:
        job = self._job
        if (work := None if self.is_missed else job._repeated()) is not None:
            self.is_check = True
            yield job._begin(work)
            job._end(work)
            self.is_check = False
            job._work = None
        while (work := job._take(self.number)) is not None:
            yield job._begin(work)
            job._end(work)
            job._work = None
        job._after_slices()
        job._move_to(self.number + 1)


_jobs: "List[Job]" = []  # of this process: at most one
_newest: "Optional[Job]" = None
_hook_before: Any = None


class Steps:
    """The steps of a run, from its first. ``len`` is their number."""

    def __init__(self, job: "Job") -> None:
        self._job = job

    def __len__(self) -> int:
        return self._job.total_steps

    def __iter__(self) -> Iterator[Step]:
        job = self._job
        if job._is_iterated:
            raise UsageError("a job has one loop over its steps; step.epoch and step.ends_epoch say "
                             "where its epochs are")
        job._is_iterated = True
        number = 0
        if job._updates:  # its first work comes only after what others wait for after the steps before
            for number in range(job._client.first_step):
                yield job._at(number)
            number = job._client.first_step
        while job._advance():
            work = job._pending
            assert work is not None
            # The body runs for missed steps, too.
            for number in range(number, work.step):
                yield job._at(number)
            number = work.step
            job._end_missed_steps()
            if work.kind == _client.SAVE:
                job._pending = None
                job._save()
                continue
            yield job._at(number)
            if job._is_updating:
                job._end_update()
            if job._pending is work or job._work is not None:
                raise UsageError(f"step {number} was left before all of its slices were done: "
                                 f"iterate over the whole step")
            number += 1
        for number in range(number, job._end_step or 0):
            yield job._at(number)
        job._end_missed_steps()
        job._is_over = True
        job._finish()


class Kind:
    """What the kinds of jobs define: what a slice is, and how its gradient is made."""

    def _size(self, dataset: Any) -> int:
        raise NotImplementedError

    def _ready(self, dataset: Any) -> None:
        """The job has been joined, and training on this set begins."""

    def _begin(self, work: Work) -> Any:
        """Prepares for a slice, and returns what the inner loop yields."""
        raise NotImplementedError

    def _end(self, work: Work) -> None:
        """Completes the slice."""
        raise NotImplementedError

    def _settle(self) -> None:
        """The helper may write to the memory now."""

    def _missed_steps_end(self) -> None:
        """The next step, if there is one, is not missed; or the program waits for the value at which it has saved."""

    def _after_slices(self) -> None:
        """The inner loop has ended."""

    def _leave(self) -> None:
        """The program ends. It may have done all of its part."""

    def _repeated(self) -> Optional[Work]:
        """A slice of the step that begins, to compute once more than needed. The program's
        calls for it have no effect but comparison."""
        return None

    def _moved(self) -> None:
        """The program is at another step, or has other weights than before."""

    def _alone(self, function: Callable[[], Any]) -> Any:
        """Calls a function of the program between steps, so that it leaves no traces."""
        return function()

    def _begin_update(self, work: Work) -> None:
        """The client's memory has the mean gradient of the step, and the body will use it."""

    def _end_update(self) -> None:
        """The body has changed the weights."""

    def _save(self) -> None:
        """Gives the client what updates need besides the weights, and completes the work."""

    def _evaluate(self, work: Work, dataset: Any, function: Callable[..., Any]) -> Any:
        """Returns what the function returns for this block."""
        raise NotImplementedError

    def _finish(self) -> None:
        """The run is complete."""

    def _has_lost_helper(self) -> bool:
        """Whether a signal has ended a process that works for this one."""
        return False


class Job(Kind):
    """One process's part in a job: the loop over its work."""

    _step = Step

    def __init__(self, config: Optional[str] = None, *, batch_size: Optional[int] = None,
                 epochs: Optional[int] = None) -> None:
        if _jobs:
            raise UsageError("this process has a job already, and a process has one: Job(...) must come before the "
                             "first use of muster.torch.job, which makes one without settings")
        self._updates = "MUSTER_UPDATE_FD" in os.environ  # this process updates the weights
        self._is_updating = False
        if "MUSTER_ENDPOINT" in os.environ:
            _finish_steps()
        self._client = make_client(config)
        self.seed = run_seed()
        generators.seed_untouched(self.seed)
        self._shared = Shared(self._client)
        self._holds: Optional[int] = None  # the version of the weights in the client's memory
        self._batch = _count("batch_size", batch_size, 1 << 24)
        self._epochs = _count("epochs", epochs, 1000000)
        self._client.set_run(self._batch, self._epochs)
        self._evaluations: Dict[int, Tuple[Any, Callable[..., Any]]] = {}
        self._pending: Optional[Work] = None  # a slice that nobody has taken yet
        self._work: Optional[Work] = None
        self._taken: List[int] = []  # slices of the last step that this process had
        self._taken_step = -1
        self._end_step: Optional[int] = None  # the number of steps, when the run is complete
        self._is_iterated = False  # the loop over the steps has begun
        self._is_over = False  # and has seen the end of the run
        self._is_stopped = False  # by the program
        self._has_failed = False
        global _newest
        _newest = self
        if self._client.is_alone:
            return  # nobody waits for this process, and a notebook may have another job later
        _jobs.append(self)
        global _hook_before
        _hook_before, sys.excepthook = sys.excepthook, _tell
        atexit.register(self._at_exit)

    @property
    def rank(self) -> int:
        """From 0. -1 in the process that updates the weights."""
        return self._client.rank if self._client.joined else int(os.environ.get("MUSTER_RANK", "0"))

    @property
    def total_steps(self) -> int:
        return self._joined().total_steps

    @property
    def steps_per_epoch(self) -> int:
        return self._joined().steps_per_epoch

    @property
    def has_last_weights(self) -> bool:
        """After the loop: whether this process has the weights of the last step. model.safetensors
        in the run directory always has them."""
        return self._client.has_last_weights

    def once(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Calls the function in one process, which has the weights of this moment, and returns its
        result in all: numbers, texts, lists and dictionaries of them. Not within a slice. All
        processes must make the same calls of once and save, in the same order.

        A process that joins later gets the results of the past, and so does a resumed run. If the
        process is lost meanwhile, another one calls the function.
        """
        name = getattr(function, "__qualname__", type(function).__name__)
        if changed := assigned_outside(function):
            raise UsageError(f"once: {name} assigns {', '.join(changed)} of the program, which only one process would "
                             f"see, and no resumed run: expected a result, and the assignment where all do it")
        return self._once(name, lambda: function(*args, **kwargs))

    def print(self, *values: Any, **how: Any) -> None:
        """Prints in rank 0 only, and thus in the terminal."""
        if self.rank == 0:
            print(*values, **how)

    def stop(self, reason: str = "job.stop") -> None:
        """Ends the run here, as if this were its last step. All processes must call it at the same
        step, because of what all have: results of once, or means of an epoch. Then leave the loop."""
        client = self._joined()
        if self._work is not None:
            raise UsageError("job.stop: expected a call outside of the loop over slices")
        self._agree("stops")
        self._is_stopped = True
        if not self._updates:
            client.tell("stop", self._shared.position, reason.encode())
        while (work := self._pending or self._next()).kind != _client.END:
            self._pending = None
            if work.kind == _client.SLICE:  # given before; it does not count
                client.report(0.0)
                client.done()
            elif work.kind == _client.SAVE:
                self._save()
            elif work.kind != _client.STEP_END:
                self._run_evaluation(work)
        self._ended(work.step)
        self._is_over = True
        self._finish()

    @property
    def is_updater(self) -> bool:
        """Whether this process updates the weights. It gets no slices, except if it trains alone."""
        return self._updates or self._client.is_updater

    def _joined(self) -> Client:
        if not self._client.joined:
            raise UsageError("the job is not joined yet: expected job.prepare(model, optimizer, loader), or a call of "
                             "steps, before")
        return self._client

    # A program that just ends would be replaced, and its replacement would end in the same way.
    def _at_exit(self) -> None:
        if self._client.joined and not self._has_failed and getattr(sys, "last_value", None) is None:
            try:
                self._leave()
            except (_client.Error, SystemExit):
                pass  # the job has ended elsewhere, or the text below tells why
        if self._client.joined and not self._is_over and not self._has_failed:
            if self._has_lost_helper():  # torch's handler for SIGCHLD may have ended _tell
                _end_as_killed(_KILLED)
            interrupted = isinstance(getattr(sys, "last_value", None), KeyboardInterrupt)
            caught = f"; it has caught: {UsageError.last}" if UsageError.last is not None else ""
            self._client.fail("the program was interrupted" if interrupted else
                              "the program ended before its run; to end a run early, use job.stop(), or "
                              f"evaluation.patience or run.steps in the config{caught}")
        if not self._client.joined and "MUSTER_ENDPOINT" in os.environ and getattr(sys, "last_value", None) is None:
            print("muster: the program has made a job, but never joined it: expected job.prepare and a loop over the "
                  "loader that it returns", file=sys.stderr, flush=True)
        _private.end(self._is_over)

    # The loop.

    def _at(self, number: int) -> Step:
        self._move_to(number)
        return self._step(self, number)

    def _move_to(self, position: int) -> None:
        self._shared.move_to(position)
        self._moved()

    def _has_weights(self) -> bool:
        """Whether the client's memory has the weights of the program's position. It may wait for
        the next work to know it."""
        if self._updates:
            return False
        shared = self._shared
        ahead = shared.position < self._client.total_steps  # at the end, the next work is the end
        if self._holds is None and self._pending is None and self._end_step is None and ahead:
            self._advance()
            self._moved()
        return self._holds == shared.position

    def _agree(self, decision: str, about: str = "decided") -> None:
        """All processes must decide alike, and so must those that come later."""
        shared = self._shared
        if calls := shared.calls():
            decision += f" and has called {calls}"
        key = f"{about}:{shared.position}"
        kind, value = self._client.ask(key, shared.position, self._has_weights())
        if kind == _client.COMPUTE:
            self._client.tell(key, shared.position, decision.encode())
        elif kind == _client.VALUE and value != decision.encode():
            raise UsageError(f"this process {decision} after step {shared.position}, and another one {value.decode()}: "
                             f"expected the same calls of once, save and torch.save in all (no `if rank == 0`), and "
                             f"decisions by what all have, such as the result of job.once, epoch.loss or epoch.mean, "
                             f"not by sums of one process")

    def _once(self, name: str, function: Callable[[], Any]) -> Any:
        self._joined()
        if self._work is not None:
            raise UsageError(f"{name}: expected a call of once outside of the loop over slices")
        if self._updates and self._is_updating:
            self._end_update()  # the others wait for these weights
        may_compute = self._has_weights()
        if self._shared.is_left and not may_compute:
            self._ended_before()
        key = f"{self.seed} {self._shared.position} {name}".encode()

        def compute() -> Any:
            seed_all(zlib.crc32(key))
            return self._alone(function)

        result = self._shared.once(name, compute, may_compute)
        seed_all(zlib.crc32(key + b" after"))  # other processes have not called the function
        return result

    def _ended_before(self) -> NoReturn:
        """The run has ended, and this process, which joined late, cannot learn what it has missed."""
        print("muster: the run ended before this process had caught up", file=sys.__stdout__, flush=True)  # not quiet
        self._is_over = True
        raise SystemExit(0)

    def _evaluate_on(self, kind: int, dataset: Any, function: Callable[..., Any]) -> None:
        if self._client.joined:
            raise UsageError("say what to evaluate before steps")
        self._evaluations[kind] = (dataset, function)

    def _join(self, dataset: Any) -> "Steps":
        if self._client.joined:
            raise UsageError("steps was called twice: a job has one loop over its steps")
        sizes = [self._size(dataset)]
        for kind in (_client.VALIDATION_BLOCK, _client.TEST_BLOCK):
            sizes.append(self._size(self._evaluations[kind][0]) if kind in self._evaluations else 0)
        self._client.join(*sizes)
        if self._updates:
            self._client.answer_with_state(self._save, self._end_missed_steps)
        self._ready(dataset)
        return Steps(self)

    def _end_missed_steps(self) -> None:
        self._missed_steps_end()
        if self._updates:
            self._client.has_state = True

    def _advance(self) -> bool:
        """Waits for a slice or an update, and evaluates meanwhile. Returns false at the end of the run."""
        while self._pending is None:
            if self._end_step is not None:  # it came within a step
                return False
            work = self._next()
            if work.kind == _client.END:
                self._ended(work.step)
                return False
            if work.kind in (_client.SLICE, _client.UPDATE, _client.SAVE):
                self._pending, self._holds = work, work.step
            elif work.kind == _client.STEP_END:
                self._holds = work.step + 1
            else:
                self._run_evaluation(work)
        return True

    def _next(self) -> Work:
        self._settle()
        return self._client.next()

    def _take(self, step: int) -> Optional[Work]:
        """The next slice of this step, or None."""
        if self._work is not None:
            raise UsageError("the previous slice is not done")
        if self._updates and step < self._client.first_step:
            return None
        while self._pending is None and self._end_step is None:
            work = self._next()
            if work.kind == _client.STEP_END:
                self._holds = step + 1
                return None
            if work.kind in (_client.SLICE, _client.UPDATE):
                self._pending, self._holds = work, work.step
            elif work.kind == _client.END:
                self._ended(work.step)
            else:  # a block that another process has not evaluated
                self._run_evaluation(work)
        if self._pending is None or self._pending.step != step:
            return None
        work, self._pending = self._pending, None
        if work.kind == _client.UPDATE:
            seed_all(work.seed)
            self._begin_update(work)
            self._is_updating = True
            self._holds = step + 1  # as soon as the body has run
            return None
        if step != self._taken_step:
            self._taken_step, self._taken = step, []
        self._taken.append(work.index)
        self._work = work
        return work

    def _ended(self, steps: int) -> None:
        self._end_step = steps
        self._shared.is_left = not self._client.is_alone
        self._holds = steps if self._client.has_last_weights else None

    def _run_evaluation(self, work: Work) -> None:
        self._holds = None  # the weights may be an average
        dataset, function = self._evaluations[work.kind]
        seed_all(work.seed)
        result = self._evaluate(work, dataset, function)
        if not isinstance(result, dict):
            result = {"loss": result}
        values = {name: float(value) for name, value in result.items()}
        if "loss" not in values:
            raise UsageError(f"the evaluation returned {sorted(values)}: expected a loss, or a "
                             f"dictionary with a loss")
        count = len(work.samples)
        loss = values.pop("loss")
        self._add_scalars(values, count)
        self._client.report(loss * count)
        self._client.done()

    def _add_scalars(self, means: Mapping[str, float], count: int) -> None:
        for name, value in means.items():
            self._client.add_scalar(name, float(value) * count)


def current() -> Optional[Job]:
    """The job of this process. In a notebook, one that is over makes place for the next."""
    is_past = _newest is not None and _newest._is_over and _newest._client.is_alone and hasattr(sys, "ps1")
    return None if is_past else _newest


def _count(name: str, value: Optional[int], most: int) -> int:
    """0 for None."""
    if value is None:
        return 0
    try:
        number = 0 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = 0
    if not 1 <= number <= most:
        raise UsageError(f"Job({name}={value!r}): expected a whole number from 1 to {most}")
    return number


def seed_all(seed: int) -> None:
    """Seeds the generators of Python, NumPy and, if it is loaded, torch."""
    random.seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)
    torch = sys.modules.get("torch")
    if torch is not None:
        seed &= 0x7FFFFFFFFFFFFFFF
        torch.default_generator.manual_seed(seed)  # torch.manual_seed takes 100 times as long
        if torch.cuda.is_initialized():
            torch.cuda.manual_seed_all(seed)


def _finish_steps() -> None:
    """Ctrl-C may have reached all processes of a job, and the server then completes a step. So the
    library delays its effect, unless the program has a handler of its own."""
    if threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _tell(kind: Any, error: BaseException, trace: Any) -> None:
    """An exception that nobody catches ends the whole job, with its text: another process would
    fail in the same way. What only this process has met ends this process, which is then replaced."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # torch's handler raises for killed loaders
    _hook_before(kind, error, trace)
    for job in _jobs:
        if job._is_over or not job._client.joined or isinstance(error, KeyboardInterrupt):
            continue
        job._has_failed = True
        killed = is_killed(error) or job._has_lost_helper()
        if not killed and not is_of_environment(error):
            job._client.fail(f"{kind.__name__}: {error}")
            continue
        if killed:
            _end_as_killed(_KILLED)
        why = "memory or a connection failed"
        if job.is_updater:  # the server starts a new one only if it was killed
            _end_as_killed(why)
        print(f"muster: this process counts as lost: {why}", file=sys.stderr, flush=True)


_KILLED = "a process that works for it was killed"


def _end_as_killed(why: str) -> None:
    print(f"muster: this process counts as lost: {why}", file=sys.stderr, flush=True)
    sys.stdout.flush()
    _private.end(False)
    os._exit(128 + signal.SIGKILL)
