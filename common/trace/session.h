// Records one process's part of a trace during the session, and writes it when the session ends.
//
// A part is a text file with one object of the Trace Event Format per line: the names of the
// process and its threads (metadata events), then the spans (complete events). `muster launch`
// merges the parts of a job into one file. Times are microseconds of CLOCK_MONOTONIC. The process
// number is 1 for the server and 2 + R for the worker of rank R. A main thread has the number of
// its process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "proto/config_fwd.h"

namespace muster::trace {

struct SessionOptions {
  std::string path;     // path of the part; empty: no trace, and the session does nothing
  std::string process;  // "worker 0"
  int number = 1;       // the process number in the trace
  int64_t first_step = 0, steps = 0;
  size_t events_per_thread = 32768;  // 112 bytes each
};

// Returns the path of the part of "server" or "worker-0". It is in the run directory or, for a
// manually started job without a run directory, beside the trace. Empty if the config requests no
// trace.
std::string PartPath(const config::Config& config, const std::string& process);

SessionOptions ServerSession(const config::Config& config);
SessionOptions WorkerSession(const config::Config& config, uint32_t rank);

// Create the session in main before other threads start, and destroy it after they are joined. It
// names the calling thread `thread`. The destructor writes the part, even after a failure. It logs
// errors, and the launcher then reports the part as missing.
class Session {
 public:
  Session(SessionOptions options, const std::string& thread);
  ~Session();
  Session(const Session&) = delete;

 private:
  const SessionOptions options_;
};

}  // namespace muster::trace
