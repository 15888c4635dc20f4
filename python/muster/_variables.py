"""The variables of a TensorFlow or Keras model in the memory of a job."""

import ctypes
import hashlib
from typing import Any, Dict, Iterable, List, Sequence

import numpy as np

from muster._client import Client, UsageError


class Place:
    """A variable, and where the job's memory has its value and, within a slice or an update, what it adds to it."""

    def __init__(self, variable: Any, name: str, weights: np.ndarray, gradient: np.ndarray, begin: int) -> None:
        self.variable, self.name = variable, name
        shape = tuple(variable.shape)
        self.weights = weights.reshape(shape)
        self.gradient = gradient.reshape(shape)
        self.range = slice(begin, begin + weights.size)  # in the whole memory

    def write(self) -> None:
        """The variable's value to the memory."""
        self.weights[...] = to_numpy(self.variable)


class Variables:
    """``given``: those of float32 are the job's; those that training changes without a gradient come first.
    ``values``: the size of one more variable, for values that belong to the weights of a step."""

    def __init__(self, client: Client, given: Iterable[Any], values: int) -> None:
        self._numbers = [client.add_variable("muster/values", (values,))]
        self._names: Dict[str, int] = {"muster/values": 1}
        variables = []
        digest = hashlib.blake2b(digest_size=8)
        for one in given:
            if any(one is other for other, _ in variables):
                raise UsageError(f"variable {_path(one)} is given twice: expected each variable once")
            if _kind(one) != "float32":
                if _kind(one).startswith(("float", "bfloat", "complex")):
                    raise UsageError(f"variable {_path(one)} is {_kind(one)}: expected float32; for mixed precision, "
                                     f"keras.mixed_precision.set_global_policy(\"mixed_bfloat16\") keeps it so")
                digest.update(np.ascontiguousarray(to_numpy(one)).tobytes())  # constants of a model, such as tables
                continue
            variables.append((one, self._name(one)))
            self._numbers.append(client.add_variable(variables[-1][1], tuple(one.shape)))
        if not variables:
            raise UsageError("the model has no variables: build it, or call it on a batch, before")
        client.set_fingerprint(int.from_bytes(digest.digest(), "little"))
        self.memory = _whole([client.weights(number) for number in self._numbers])
        start = client.weights(self._numbers[0]).ctypes.data
        self.places: List[Place] = []
        for number, (one, name) in zip(self._numbers[1:], variables):
            weights = client.weights(number)
            self.places.append(Place(one, name, weights, client.gradient(number),
                                     (weights.ctypes.data - start) // 4))
        self.values = client.weights(self._numbers[0])
        self.changes = client.gradient(self._numbers[0])  # of the values
        self._of = {id(place.variable): place for place in self.places}
        self._past: Dict[int, Any] = {}  # variables of models that others have followed
        self.write()

    def _name(self, one: Any) -> str:
        """Of the tensor in model.safetensors. Layers may have variables of one path."""
        path = _path(one)
        count = self._names[path] = self._names.get(path, 0) + 1
        return path if count == 1 else f"{path}:{count}"

    def of(self, variable: Any) -> Place:
        place = self._of.get(id(variable))
        if place is None:
            raise UsageError(f"variable {_path(variable)} is not one of the job's")
        return place

    def bind(self, given: Sequence[Any]) -> bool:
        """Takes the variables of another model of the same shapes instead. Returns whether there were other ones."""
        others = [one for one in given if _kind(one) == "float32"]
        if all(id(one) in self._of for one in others):
            return False
        if [tuple(one.shape) for one in others] != [place.weights.shape for place in self.places]:
            new = next((one for one in others if id(one) not in self._of), others[0])
            raise UsageError(f"variable {_path(new)} is new: a job has the variables that the model of the first fit "
                             f"had; a later fit may have a part of them, or another model of the same shapes. Train "
                             f"others in runs of their own")
        for place, one in zip(self.places, others):
            self._past[id(place.variable)] = place.variable
            place.variable = one
        self._of = {id(place.variable): place for place in self.places}
        for one in others:
            self._past.pop(id(one), None)
        return True

    def refuse_past(self, call: str, given: Sequence[Any]) -> None:
        """A process that came later lacks what earlier models have learned."""
        if any(id(one) in self._past for one in given):
            raise UsageError(f"{call} of a model that an earlier fit has trained, after a fit of another one: expected "
                             f"the call before that fit")

    def differ(self) -> bool:
        """Whether the program has changed the model's variables since they were brought or written."""
        return any(not np.array_equal(to_numpy(one.variable), one.weights, equal_nan=True) for one in self.places)

    def write(self) -> None:
        for one in self.places:
            one.write()

    def add_nothing(self) -> None:
        self.changes[...] = 0
        for one in self.places:
            one.gradient[...] = 0


class Bringer:
    """Assigns variables from the job's memory, in one call."""

    def __init__(self, variables: Variables, places: Sequence[Place]) -> None:
        self._places = sorted(places, key=lambda one: one.range.start)
        self._memory = variables.memory
        self._call: Any = None

    def bring(self, lends: bool) -> None:
        """``lends``: the variables are in the job's memory, which changes with the next step. No code of the program
        may run meanwhile, because what it copies from them may be a view."""
        if not self._places:
            return
        if hasattr(raw(self._places[0].variable), "detach"):
            import torch
            with torch.no_grad():
                for one in self._places:
                    raw(one.variable).copy_(torch.from_numpy(one.weights))
            return
        begin, end = self._places[0].range.start, self._places[-1].range.stop
        import tensorflow as tf
        if self._call is None:
            def assign(flat: Any) -> None:
                for one in self._places:
                    part = flat[one.range.start - begin:one.range.stop - begin]
                    raw(one.variable).assign(tf.reshape(part, one.weights.shape))

            self._call = tf.function(assign, autograph=False)
        part = self._memory[begin:end]
        self._call(lent(part) if lends else tf.constant(part))


def raw(variable: Any) -> Any:
    """The backend's variable of one of Keras."""
    return getattr(variable, "_value", variable)


def to_numpy(value: Any) -> np.ndarray:
    """Maybe a view, which nobody may change."""
    if hasattr(value, "value") and not callable(value.value):  # a keras.Variable
        value = value.value
    if hasattr(value, "detach"):
        return np.asarray(value.detach().cpu())
    if hasattr(value, "read_value"):
        value = value.read_value()
    try:
        return np.asarray(memoryview(value))  # an eager tensor, without a copy
    except (TypeError, ValueError, BufferError):  # on a GPU, or of bfloat16
        return np.asarray(value)


def lent(array: np.ndarray) -> Any:
    """A tensor of TensorFlow in this memory, which is the job's: neither a kernel nor a variable changes memory that
    TensorFlow does not own."""
    import tensorflow as tf
    if array.ctypes.data % 64 != 0 or tf.config.list_physical_devices("GPU"):  # or it is another array
        return tf.constant(array)
    return tf.experimental.dlpack.from_dlpack(array.__dlpack__())


def _kind(variable: Any) -> str:
    return str(getattr(variable.dtype, "name", variable.dtype))


def _path(variable: Any) -> str:
    return str(getattr(variable, "path", None) or variable.name).split(":")[0]


def _whole(parts: Sequence[np.ndarray]) -> np.ndarray:
    """The memory from the first to the last, which lie in this order."""
    begin, last = parts[0].ctypes.data, parts[-1]
    floats = (last.ctypes.data - begin) // 4 + last.size
    return np.ctypeslib.as_array(ctypes.cast(begin, ctypes.POINTER(ctypes.c_float)), (floats,))
