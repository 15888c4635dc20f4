"""What preloaded.cc, between a run's programs and the C library, is to do."""
import mmap
import os
import struct

# As in preloaded.cc: for the server and the launcher the number of the call that fails, how many fail,
# with which error, and how many have; then how far the wall clock is ahead, how long workers
# sleep in each operation, and how many of these there were.
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
        """Of this program's calls from now on, the one of this number and those after it fail."""
        first = FIELDS * PROGRAMS.index(program)
        self._set(first + ERROR, error)
        self._set(first + MANY, many)
        self._set(first + NEXT, call)  # last: from here on it counts

    def heal(self):
        for program in PROGRAMS:
            self._set(FIELDS * PROGRAMS.index(program) + NEXT, 0)

    def failed(self):
        """How many calls have failed so far."""
        return sum(self._get(FIELDS * number + FAILED) for number in range(len(PROGRAMS)))

    def set_clock(self, seconds_ahead):
        self._set(CLOCK, seconds_ahead)

    def set_sleep(self, seconds):
        self._set(SLEEP, int(seconds * 1e6))

    def operations(self):
        return self._get(OPERATIONS)
