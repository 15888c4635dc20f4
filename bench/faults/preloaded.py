"""Controls preloaded.cc, which is loaded between a run's programs and the C library."""
import mmap
import os
import struct

# The memory layout of preloaded.cc: for server and launcher, the index of the first call to fail,
# the number of calls to fail, the error, and the number of failed calls so far; then the shift of
# the wall clock, the sleep per operation of a worker, and the number of operations.
NEXT, MANY, ERROR, FAILED, FIELDS = 0, 1, 2, 3, 4
PROGRAMS = ("server", "launcher")
CLOCK = FIELDS * len(PROGRAMS)
SLEEP = CLOCK + 1
OPERATIONS = CLOCK + 2


class Preloaded:
    def __init__(self, library, path, below):
        with open(path, "wb") as file:
            file.truncate(mmap.PAGESIZE)
        with open(path, "r+b") as file:
            self.memory = mmap.mmap(file.fileno(), mmap.PAGESIZE)
        self.environment = {"LD_PRELOAD": library, "MUSTER_CHAOS_FILE": path,
                            "MUSTER_CHAOS_BELOW": os.path.realpath(below) + "/"}

    def _get(self, field):
        return struct.unpack_from("=q", self.memory, 8 * field)[0]

    def _set(self, field, value):
        struct.pack_into("=q", self.memory, 8 * field, value)

    def fail(self, program, call, many, error):
        """Makes `many` calls of this program fail, starting with the `call`-th from now."""
        first = FIELDS * PROGRAMS.index(program)
        self._set(first + ERROR, error)
        self._set(first + MANY, many)
        self._set(first + NEXT, call)  # last, because this activates the fault

    def heal(self):
        for program in PROGRAMS:
            self._set(FIELDS * PROGRAMS.index(program) + NEXT, 0)

    def failed(self):
        """Returns the number of calls that have failed so far."""
        return sum(self._get(FIELDS * number + FAILED) for number in range(len(PROGRAMS)))

    def set_clock(self, seconds_ahead):
        self._set(CLOCK, seconds_ahead)

    def set_sleep(self, seconds):
        self._set(SLEEP, int(seconds * 1e6))

    def operations(self):
        return self._get(OPERATIONS)
