// The limits that a shell sets (ulimit): noticed before a library aborts of them, and named where
// they are why something fails.
#pragma once

#include <string>

namespace muster {

// A file that may not grow is an error of write(2), EFBIG, and not SIGXFSZ, which ends a process
// without a word. Call early in main.
void IgnoreFileSizeSignal();

// What the error means: "File too large (ulimit -f allows 4096 bytes a file, shared memory
// included)". Where a limit is the likely reason it is named with its value, otherwise these are
// the system's words.
std::string ErrorText(int error);

// " (ulimit -n allows 1024 open files)"
std::string OpenFilesHint();

// Makes sure that this process may have `count` open files, raising the soft limit if need be.
// `who` needs them: "the server of 4 workers". Throws Error(kFailure).
void RequireOpenFiles(const std::string& who, unsigned count);

// How many a server may come to need.
inline unsigned OpenFilesOfServer(unsigned workers) { return 64 + 8 * workers; }

// Makes sure that this process can start `count` more threads at this time: libzmq and OpenMP end
// the process where they cannot. Throws Error(kFailure).
void RequireThreads(const std::string& who, unsigned count);

}  // namespace muster
