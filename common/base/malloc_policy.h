// What this process's malloc does with memory that was freed.
#pragma once

namespace muster {

// Keeps it, for the next message: libzmq takes a fresh buffer for each one that it receives, and by
// default glibc maps and unmaps those of a megabyte one by one, so that every page of every message
// is cleared by the kernel first (a fifth of a round of 100 MB over TCP). Call it before there are
// threads. The process stays as large as it was at most.
void KeepFreedMemory();

}  // namespace muster
