"""Copies between the memory of a job and a GPU. Nobody waits for them, except before memory is used
again: the weights come in one copy, and gradients go while backward continues."""

import collections
import ctypes
import threading
from typing import Any, Callable, Deque, List, Optional, Sequence, Tuple

import numpy as np
import torch

from muster._client import UsageError


class Queue:
    """Calls in order, each as soon as the copies that it needs have arrived. Backward has a thread for
    each device."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: Deque[Tuple[Any, Callable[[], Any]]] = collections.deque()

    def add(self, arrived: Any, call: Callable[[], Any]) -> None:
        """``arrived``: an event, or None."""
        with self._lock:
            self._waiting.append((arrived, call))
            self._run(waits=False)

    def finish(self) -> None:
        with self._lock:
            self._run(waits=True)

    def clear(self) -> None:
        self._waiting.clear()

    def _run(self, waits: bool) -> None:
        while self._waiting:
            arrived, call = self._waiting[0]
            if arrived is not None and waits:
                arrived.synchronize()
            elif arrived is not None and not arrived.query():
                return
            self._waiting.popleft()
            call()


class Memory:
    """All weights and all gradients of a job, as two arrays on the host."""

    def __init__(self, client: Any, variables: int) -> None:
        self.weights, self.gradients = (_whole(get, variables) for get in (client.weights, client.gradient))
        self.is_alone = client.is_alone
        self._is_pinned = False

    def place(self, weights: torch.Tensor) -> slice:
        begin = (weights.data_ptr() - self.weights.data_ptr()) // 4
        return slice(begin, begin + weights.numel())

    def pin(self, device: torch.device) -> None:
        """Copies from and to other memory would make the program wait. Both arrays are in one mapping; those
        of a client without a server are not, and stay as they are."""
        if self._is_pinned:
            return
        self._is_pinned = True
        page = 4096
        begin = self.weights.data_ptr() // page * page
        end = -(-(self.gradients.data_ptr() + 4 * self.gradients.numel()) // page) * page
        library: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        code = int(library.cudaHostRegister(begin, end - begin, 1))
        if code == 0:
            return
        print(f"muster: the memory of the job could not be registered with CUDA (error {code}): copies take longer",
              flush=True)
        try:
            torch.zeros(1, device=device)  # the next call would report the error once more
        except RuntimeError:
            pass


class Device:
    """The parameters and running statistics of a model that are on one GPU. Each of them is given with
    its weights in the job's memory."""

    def __init__(self, device: torch.device, memory: Memory, parameters: Sequence[Tuple[torch.Tensor, torch.Tensor]],
                 statistics: Sequence[Tuple[torch.Tensor, torch.Tensor]]) -> None:
        if device.type == "cuda" and not memory.is_alone:
            memory.pin(device)
        self._device = device
        self._module = getattr(torch, device.type)
        self._side = self._module.Stream(device=device)
        self._memory = memory
        self._tensors = [tensor for tensor, _ in parameters]
        self._buffers = [buffer for buffer, _ in statistics]
        self._all, places = _span(memory, [weights for _, weights in (*parameters, *statistics)])
        self._flat = torch.empty(self._all.stop - self._all.start, device=device)
        views = [self._flat[place].view(tensor.shape)
                 for place, tensor in zip(places, self._tensors + self._buffers)]
        self._weights, self._statistics = views[:len(parameters)], views[len(parameters):]
        self._changed, places = _span(memory, [weights for _, weights in statistics])
        self._sums = torch.zeros(self._changed.stop - self._changed.start, device=device)
        self._changes = [self._sums[place].view(buffer.shape) for place, buffer in zip(places, self._buffers)]
        self._brought: Any = None
        self._stream: Any = None  # that has the weights

    def bring(self) -> None:
        """The job's weights to the model, when the GPU's current stream gets there."""
        self._stream = self._module.current_stream(self._device)
        self._flat.copy_(self._memory.weights[self._all], non_blocking=True)
        self._brought = self._event()
        with torch.no_grad():
            torch._foreach_copy_(self._tensors, self._weights)

    def bring_statistics(self) -> None:
        if self._buffers:
            torch._foreach_copy_(self._buffers, self._statistics)

    def settle(self) -> None:
        """Before others write the weights in the job's memory."""
        if self._brought is not None:
            self._brought.synchronize()
            self._brought = None

    def check_stream(self) -> None:
        if self._stream is not None and self._module.current_stream(self._device) != self._stream:
            raise UsageError("the body of the loop computes on another stream than the loop itself, which brings the "
                             "weights and the batch: expected the whole loop within torch.cuda.stream(...)")

    def take(self, source: torch.Tensor, target: torch.Tensor) -> Any:
        """Begins a copy to the host, beside what the current stream will do. Returns its event."""
        self._side.wait_event(self._event())
        with self._module.stream(self._side):
            target.copy_(source, non_blocking=True)
            done = self._event()
        source.record_stream(self._side)
        return done

    def take_statistics(self, share: float) -> Any:
        if not self._buffers:
            return None
        torch._foreach_copy_(self._changes, self._buffers)
        self._sums.mul_(share)
        return self.take(self._sums, self._memory.gradients[self._changed])

    def numbers(self, values: List[torch.Tensor]) -> Tuple[torch.Tensor, Any]:
        """These numbers on the host, and the event after which they are there."""
        host = torch.empty(len(values), dtype=torch.float64, pin_memory=self._device.type == "cuda")
        return host, self.take(torch.stack(values), host)

    def _event(self) -> Any:
        event = self._module.Event()
        event.record(self._module.current_stream(self._device))
        return event


def _whole(get: Callable[[int], np.ndarray], variables: int) -> torch.Tensor:
    first, last = get(0), get(variables - 1)
    floats = (last.ctypes.data - first.ctypes.data) // 4 + last.size
    pointer = ctypes.cast(first.ctypes.data, ctypes.POINTER(ctypes.c_float))
    return torch.from_numpy(np.ctypeslib.as_array(pointer, (floats,)))


def _span(memory: Memory, variables: Sequence[torch.Tensor]) -> Tuple[slice, List[slice]]:
    """The part of the memory that has these variables, and the place of each in it."""
    places = [memory.place(one) for one in variables]
    begin = min((one.start for one in places), default=0)
    end = max((one.stop for one in places), default=0)
    return slice(begin, end), [slice(one.start - begin, one.stop - begin) for one in places]
