"""A device of PyTorch whose tensors are in the CPU's memory, and which computes as late as a GPU may:
an operation waits in its stream, and its result is garbage, until somebody waits for the stream. So
a program that forgets to wait, or lets memory go too early, computes other numbers."""

import collections
import contextlib
import random
import threading
import weakref

import torch
from torch import library as kernels
from torch.utils import backend_registration
from torch.utils._pytree import tree_flatten, tree_map

_lock = threading.RLock()
_thread = threading.local()
_late = random.Random(5)
_users = collections.Counter()  # tensors of a storage
_owners = {}  # the stream that allocated it
counts = collections.Counter()  # copies, bytes and waits


class Stream:
    """Work in order. Its results appear when somebody waits for it."""

    def __init__(self, device=None, **_):
        self.device = device
        self.waiting = collections.deque()
        self.done = self.queued = 0

    def add(self, work):
        with _lock:
            self.queued += 1
            self.waiting.append(work)

    def flush(self, until=None):
        with _lock:
            until = self.queued if until is None else until
            while self.done < until and self.waiting:
                self.done += 1
                self.waiting.popleft()()

    def synchronize(self):
        counts["waits"] += 1
        self.flush()

    def wait_event(self, event):
        self.add(event.flush)

    def wait_stream(self, other):
        event = Event()
        event.record(other)
        self.wait_event(event)


class Event:
    def __init__(self, **_):
        self.stream, self.at, self.asked = None, 0, 0

    def record(self, stream=None):
        self.stream = stream or current_stream()
        self.at, self.asked = self.stream.queued, _late.randrange(4)

    def flush(self):
        if self.stream is not None:
            self.stream.flush(self.at)

    def query(self):
        """Late, and not in the order of the streams."""
        with _lock:
            if self.stream is None or self.stream.done >= self.at:
                return True
            self.asked -= 1
            if self.asked < 0:
                self.flush()
            return self.asked < 0

    def synchronize(self):
        counts["waits"] += 1
        self.flush()


_default = Stream()


def current_stream(device=None):
    return getattr(_thread, "stream", _default)


@contextlib.contextmanager
def stream(one):
    before = current_stream()
    _thread.stream = one
    try:
        yield
    finally:
        _thread.stream = before


class Module(backend_registration._DummyBackendModule):
    Stream, Event = Stream, Event
    current_stream = staticmethod(current_stream)
    stream = staticmethod(stream)

    def synchronize(self, device=None):
        current_stream().synchronize()


backend_registration._setup_privateuseone_for_python_backend("fakegpu", backend_module=Module())
DEVICE = torch.device("fakegpu:0")


class Fake(torch.Tensor):
    @staticmethod
    def __new__(cls, raw):
        one = torch.Tensor._make_wrapper_subclass(cls, raw.size(), strides=raw.stride(),
                                                  storage_offset=raw.storage_offset(), dtype=raw.dtype,
                                                  device=DEVICE, requires_grad=False)
        one.raw = raw
        with _lock:
            _users[_storage(raw)] += 1
            _owners.setdefault(_storage(raw), current_stream())
        weakref.finalize(one, _drop, raw)
        return one

    __torch_function__ = torch._C._disabled_torch_function_impl

    def as_subclass(self, cls):
        return Fake(self.raw)

    def record_stream(self, used):
        with _lock:
            _users[_storage(self.raw)] += 1
        used.add(lambda raw=self.raw: _drop(raw))

    def __reduce_ex__(self, protocol):
        """Saved as a tensor of the CPU."""
        current_stream().flush()
        return self.raw.clone().__reduce_ex__(protocol)

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        with _lock:
            return _dispatch(function, args, kwargs or {})


def _storage(raw):
    return raw.untyped_storage().data_ptr()


def _drop(raw):
    """The last tensor of a storage is gone: its stream may give the memory to others."""
    with _lock:
        _users[_storage(raw)] -= 1
        if _users[_storage(raw)] <= 0:
            del _users[_storage(raw)]
            whole = torch.empty(0, dtype=torch.uint8).set_(raw.untyped_storage())
            _owners.pop(_storage(raw)).add(lambda: whole.fill_(0xFF))  # NaN


def _raw(value):
    return value.raw if isinstance(value, Fake) else value


def _wrap(value):
    return Fake(value) if isinstance(value, torch.Tensor) and not isinstance(value, Fake) else value


def _tensors(tree):
    return [one for one in tree_flatten(tree)[0] if isinstance(one, torch.Tensor)]


_WAIT = ("_local_scalar_dense", "item", "equal", "is_nonzero", "nonzero", "masked_select", "_unique2")


def _dispatch(function, args, kwargs):
    name = function._schema.name.removeprefix("aten::")
    queue = current_stream()
    if _late.randrange(3) == 0:
        queue.flush()  # other streams may be behind this one
    if name == "copy_" and not (isinstance(args[0], Fake) and isinstance(args[1], Fake)):
        return _copy(args[0], args[1], bool(args[2]) if len(args) > 2 else kwargs.get("non_blocking", False))
    if name == "_to_copy" and kwargs.get("device") is not None:
        like = {"dtype": kwargs.get("dtype") or args[0].dtype}
        target = torch.empty_like(_raw(args[0]), **like)
        target = target if torch.device(kwargs["device"]).type == "cpu" else Fake(target)
        return _copy(target, args[0], kwargs.get("non_blocking", False) and isinstance(target, Fake))
    if kwargs.get("device") is not None:
        kwargs = dict(kwargs, device="cpu")
    inputs = tree_map(_raw, (args, kwargs))
    if name in _WAIT:
        counts["waits"] += 1
        queue.flush()
        return tree_map(_wrap, function(*inputs[0], **inputs[1]))
    returns = function._schema.returns
    if any(one.alias_info is not None and not one.alias_info.is_write for one in returns):
        return tree_map(_wrap, function(*inputs[0], **inputs[1]))  # a view
    if torch.Tag.nondeterministic_seeded in function.tags:
        queue.flush()
        result = function(*inputs[0], **inputs[1])
    else:
        trial = tree_map(lambda one: one.to("meta") if isinstance(one, torch.Tensor) else one, inputs)
        if "device" in trial[1]:
            trial[1]["device"] = "meta"
        result = tree_map(_garbage, function(*trial[0], **trial[1]))
        queue.add(lambda: _compute(function, inputs, [] if _returns_argument(returns) else _tensors(result)))
    return args[0] if _returns_argument(returns) else tree_map(_wrap, result)


def _returns_argument(returns):
    return bool(returns) and returns[0].alias_info is not None


def _garbage(value):
    if not isinstance(value, torch.Tensor):
        return value
    one = torch.empty_strided(value.size(), value.stride(), dtype=value.dtype)
    return one.fill_(float("nan")) if one.is_floating_point() else one.zero_()


def _compute(function, inputs, targets):
    values = _tensors(function(*inputs[0], **inputs[1]))
    for target, value in zip(targets, values):
        if target.shape == value.shape:  # statistics that nobody needs are empty on the CPU
            target.copy_(value)


def _copy(target, source, non_blocking):
    counts["to the device" if isinstance(target, Fake) else "to the host"] += 1
    counts["bytes"] += _raw(source).numel() * _raw(source).element_size()
    here, there = _raw(target), _raw(source)
    queue = current_stream()
    queue.add(lambda: here.copy_(there))
    if not non_blocking:
        counts["waits"] += 1
        queue.flush()
    return target


_kernels = kernels.Library("aten", "IMPL")


def _empty(size, dtype=None, layout=None, device=None, pin_memory=None, memory_format=None):
    return Fake(torch.empty(size, dtype=dtype or torch.get_default_dtype(), memory_format=memory_format))


def _empty_strided(size, stride, dtype=None, layout=None, device=None, pin_memory=None):
    return Fake(torch.empty_strided(size, stride, dtype=dtype or torch.get_default_dtype()))


_kernels.impl("empty.memory_format", _empty, "PrivateUse1")
_kernels.impl("empty_strided", _empty_strided, "PrivateUse1")


def watch(client):
    """Fails the program if a gradient changes after the helper was told that it is complete."""
    plain = client.push, client.done
    pushed = {}

    def push(self, variable):
        pushed[variable] = self.gradient(variable).copy()
        plain[0](self, variable)

    def done(self):
        for variable, value in pushed.items():
            assert (self.gradient(variable) == value).all(), f"variable {variable} was pushed too early"
        pushed.clear()
        plain[1](self)

    client.push, client.done = push, done
