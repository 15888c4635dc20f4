"""The update of weights by an optimizer of Keras: SGD, Adam and AdamW in place, in the job's memory, on all cores.
TensorFlow would make a pass over memory of its own for each operation. The formulas are Keras's, in its order; each
operation is rounded as IEEE 754 says, so that all processors give the same bits."""

import math
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, List, Optional, Sequence, Tuple

import keras
import numpy as np

from muster._variables import Place, raw, to_numpy

_BLOCK = 1 << 17  # floats: a thread's part of an array in its cache
_AT_ONCE = 1 << 17  # floats for which another thread takes longer to wake than to update them
_MOST_THREADS = 16  # they share the memory's bandwidth
_KINDS = (keras.optimizers.SGD, keras.optimizers.Adam, keras.optimizers.AdamW)
_ELSEWHERE = ("clipnorm", "global_clipnorm", "clipvalue", "use_ema", "gradient_accumulation_steps",
              "loss_scale_factor", "amsgrad")
Gradients = Sequence[Optional[np.ndarray]]


class Update:
    """Of trained variables. ``by_keras`` gives the optimizer gradients that this module cannot apply."""

    def __init__(self, optimizer: Any, places: Sequence[Place], by_keras: Callable[[Gradients], None]) -> None:
        self._optimizer, self._places, self._by_keras = optimizer, places, by_keras
        self._in_place: Optional[_InPlace] = None
        self._is_new = self._is_shown = True
        self.is_ahead = False  # the variables have the values of an earlier update

    def show(self) -> None:
        """Before code of the program, which may look at variables of the model and of the optimizer, or change them."""
        if self.is_ahead:
            assert self._in_place is not None
            self._in_place.give()
        self.is_ahead, self._is_shown = False, True

    def apply(self, gradients: Gradients) -> None:
        """None: no change of this variable."""
        if self._is_new:
            self._is_new = False
            self._in_place = _in_place(self._optimizer, self._places)
        if self._in_place is None:
            self._by_keras(gradients)
            for place in self._places:
                place.write()
            return
        if self._is_shown:
            self._in_place.take()
        self._in_place.apply(gradients)
        self.is_ahead, self._is_shown = True, False


def _in_place(optimizer: Any, places: Sequence[Place]) -> Optional["_InPlace"]:
    if keras.backend.backend() != "tensorflow" or type(optimizer) not in _KINDS or \
            any(getattr(optimizer, name, None) for name in _ELSEWHERE) or \
            any(place.variable.constraint is not None or getattr(place.variable, "overwrite_with_gradient", False)
                for place in places):
        return None
    try:
        return _InPlace(optimizer, places)
    except KeyError:  # the optimizer was built for other variables, which Keras explains
        return None


class _InPlace:
    """Memory of its own for the optimizer's state: TensorFlow shares that of variables with whoever reads them."""

    def __init__(self, optimizer: Any, places: Sequence[Place]) -> None:
        self._optimizer, self._places = optimizer, places
        self._is_adam = not isinstance(optimizer, keras.optimizers.SGD)
        slots = [optimizer._momentums, optimizer._velocities] if self._is_adam else \
            [optimizer.momentums] if optimizer.momentum != 0 else []
        numbers = [optimizer._get_variable_index(place.variable) for place in places]
        self._decays = [bool(optimizer.weight_decay) and optimizer._use_weight_decay(raw(place.variable))
                        for place in places]
        self._state = [[np.empty(place.weights.shape, np.float32) for place in places] for _ in slots]
        self._held: List[Tuple[Any, np.ndarray]] = [(place.variable, place.weights) for place in places]
        for slot, arrays in zip(slots, self._state):
            self._held += [(slot[i], array) for i, array in zip(numbers, arrays)]
        self._parts = _parts([place.weights.size for place in places])
        self._pool = ThreadPoolExecutor(len(self._parts))

    def take(self) -> None:
        for variable, array in self._held:
            array[...] = to_numpy(variable)

    def give(self) -> None:
        for variable, array in self._held:
            variable.assign(array)

    def apply(self, gradients: Gradients) -> None:
        rate = np.float32(to_numpy(self._optimizer.learning_rate))
        decay = np.float32(self._optimizer.weight_decay or 0)
        update = self._adam(rate) if self._is_adam else self._sgd(rate)

        def run(part: List[Tuple[int, int, int]]) -> None:
            spare = np.empty((2, min(_BLOCK, max(end - begin for _, begin, end in part))), np.float32)
            with np.errstate(all="ignore"):
                for i, begin, end in part:
                    gradient = gradients[i]
                    if gradient is None:
                        continue
                    weights = self._places[i].weights.reshape(-1)[begin:end]
                    first, second = spare[0, :end - begin], spare[1, :end - begin]
                    if self._decays[i]:
                        np.multiply(weights, decay, out=first)
                        np.multiply(first, rate, out=first)
                        np.subtract(weights, first, out=weights)
                    state = [slot[i].reshape(-1)[begin:end] for slot in self._state]
                    update(gradient.reshape(-1)[begin:end], weights, state, first, second)

        if len(self._parts) == 1:
            run(self._parts[0])
        else:
            for _ in self._pool.map(run, self._parts):
                pass
        self._optimizer.iterations.assign_add(1)

    def _sgd(self, rate: np.float32) -> Callable[..., None]:
        momentum = np.float32(self._optimizer.momentum)
        is_nesterov = self._optimizer.nesterov

        def update(g: np.ndarray, w: np.ndarray, state: List[np.ndarray], change: np.ndarray,
                   ahead: np.ndarray) -> None:
            np.multiply(g, rate, out=change)
            if not state:
                np.subtract(w, change, out=w)
                return
            m, = state
            np.multiply(m, momentum, out=m)
            np.subtract(m, change, out=m)
            if is_nesterov:
                np.multiply(m, momentum, out=ahead)
                np.subtract(ahead, change, out=ahead)
            np.add(w, ahead if is_nesterov else m, out=w)

        return update

    def _adam(self, rate: np.float32) -> Callable[..., None]:
        one = self._optimizer
        step = int(to_numpy(one.iterations)) + 1
        powers = [np.float32(math.pow(np.float32(beta), step)) for beta in (one.beta_1, one.beta_2)]
        alpha = rate * np.sqrt(np.float32(1) - powers[1]) / (np.float32(1) - powers[0])
        rest1, rest2, epsilon = np.float32(1 - one.beta_1), np.float32(1 - one.beta_2), np.float32(one.epsilon)

        def update(g: np.ndarray, w: np.ndarray, state: List[np.ndarray], a: np.ndarray, b: np.ndarray) -> None:
            m, v = state
            np.subtract(g, m, out=a)
            np.multiply(a, rest1, out=a)
            np.add(m, a, out=m)
            np.multiply(g, g, out=a)
            np.subtract(a, v, out=a)
            np.multiply(a, rest2, out=a)
            np.add(v, a, out=v)
            np.sqrt(v, out=a)
            np.add(a, epsilon, out=a)
            np.multiply(m, alpha, out=b)
            np.divide(b, a, out=b)
            np.subtract(w, b, out=w)

        return update


def _parts(sizes: Sequence[int]) -> List[List[Tuple[int, int, int]]]:
    """Blocks (variable, begin, end) for each thread."""
    total = sum(sizes)
    threads = min(len(os.sched_getaffinity(0)), _MOST_THREADS, 1 + total // _AT_ONCE)
    parts: List[List[Tuple[int, int, int]]] = [[] for _ in range(threads)]
    done = 0
    for i, size in enumerate(sizes):
        for begin in range(0, size, _BLOCK):
            end = min(begin + _BLOCK, size)
            parts[done * threads // total].append((i, begin, end))
            done += end - begin
    return [part for part in parts if part]
