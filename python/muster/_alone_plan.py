"""Which samples each slice has, and its seed, when a process trains alone: the numbers that server
and workers compute (common/plan, worker/data/epoch_order.cc, common/base/random.cc)."""

import dataclasses
from typing import Dict, Tuple

import numpy as np

from muster._client import SLICE, Work

_MASK = (1 << 64) - 1
# The first 32 bytes of the secret of XXH3, as little-endian numbers.
_SECRET = (0xbe4ba423396cfeb8, 0x1cad21f72c81017c, 0xdb979083e96dd4de, 0x1f67b3b7a4a44072)


def seed_of(*key: int) -> int:
    """XXH3_64bits of three or four uint64."""
    hashed = len(key) * 8 * 0x9E3779B185EBCA87
    for words, secret in ((key[:2], _SECRET[:2]), (key[-2:], _SECRET[2:])):
        product = (words[0] & _MASK ^ secret[0]) * (words[1] & _MASK ^ secret[1])
        hashed += product & _MASK ^ product >> 64
    hashed &= _MASK
    hashed = (hashed ^ hashed >> 37) * 0x165667919E3779F9 & _MASK
    return hashed ^ hashed >> 32


def _philox(counter: Tuple[np.ndarray, ...], key: Tuple[int, int]) -> Tuple[np.ndarray, ...]:
    """Philox4x32-10 of arrays of uint64 that hold 32 bits each."""
    low, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    for turn in range(10):
        keys = [np.uint64(one + turn * weyl & 0xFFFFFFFF)
                for one, weyl in zip(key, (0x9E3779B9, 0xBB67AE85))]
        first = counter[0] * np.uint64(0xD2511F53)
        second = counter[2] * np.uint64(0xCD9E8D57)
        counter = ((second >> shift) ^ counter[1] ^ keys[0], second & low,
                   (first >> shift) ^ counter[3] ^ keys[1], first & low)
    return counter


def _words(*numbers: int) -> Tuple[np.ndarray, ...]:
    return tuple(np.array([number], np.uint64) for number in numbers)


def epoch_order(size: int, seed: int, epoch: int) -> np.ndarray:
    """The Fisher-Yates shuffle of an epoch. Each block of random bits serves two places."""
    shuffle = 2  # RandomPurpose
    mixed = _philox(_words(shuffle, 0, 0x6d757374, 0x65720000),
                    (seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF))
    pairs = np.arange((size + 1) // 2, dtype=np.uint64)
    blocks = _philox((*_words(epoch, 0, 0), pairs), (int(mixed[0][0]), int(mixed[1][0])))
    high = np.stack([blocks[2], blocks[0]], 1).reshape(-1)[:size]  # of the even and the odd place
    low = np.stack([blocks[3], blocks[1]], 1).reshape(-1)[:size]
    choices = np.arange(1, size + 1, dtype=np.uint64)
    # The upper 64 of the 128 bits of a product. It fits, because choices has at most 32 bits.
    places = ((high * choices + (low * choices >> np.uint64(32))) >> np.uint64(32)).tolist()
    order = list(range(size))
    for i in range(size - 1, -1, -1):
        other = places[i]
        order[i], order[other] = order[other], order[i]
    return np.array(order, np.int64)


@dataclasses.dataclass
class StepPlan:
    """common/plan/step_plan.h"""

    train_samples: int
    batch: int
    slices: int
    seed: int
    drop_last: bool
    in_order: bool

    def __post_init__(self) -> None:
        self._orders: Dict[int, np.ndarray] = {}  # of the last two epochs: loaders work ahead

    @property
    def steps_per_epoch(self) -> int:
        more = 0 if self.drop_last else self.batch - 1
        return (self.train_samples + more) // self.batch

    @property
    def samples_per_epoch(self) -> int:
        return self.steps_per_epoch * self.batch if self.drop_last else self.train_samples

    def batch_at(self, step: int) -> int:
        """The number of samples."""
        return min(self.batch, self.train_samples - step % self.steps_per_epoch * self.batch)

    def slice_at(self, step: int, index: int) -> Work:
        """Maybe without samples, if the batch is small."""
        epoch, place = divmod(step, self.steps_per_epoch)
        batch = self.batch_at(step)
        begin, end = (place * self.batch + batch * i // self.slices for i in (index, index + 1))
        seed = seed_of(self.seed, SLICE, step, index)
        return Work(SLICE, step, epoch, index, self._order(epoch)[begin:end].copy(), batch, seed)

    def _order(self, epoch: int) -> np.ndarray:
        if epoch not in self._orders:
            while len(self._orders) > 1:
                del self._orders[min(self._orders)]
            self._orders[epoch] = np.arange(self.train_samples, dtype=np.int64) if self.in_order \
                else epoch_order(self.train_samples, self.seed, epoch)
        return self._orders[epoch]
