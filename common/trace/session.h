// One process's share of a trace: recorded while the session lives, written when it ends.
//
// A part is a text file with one object of the Trace Event Format per line: the names of process
// and threads (metadata events), then the spans (complete events). `muster launch` merges the
// parts of a job into one file. Times are microseconds of CLOCK_MONOTONIC; a process is numbered 1
// for the server, 2 + R for the worker of rank R, its main thread as the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "proto/config_fwd.h"

namespace muster::trace {

struct SessionOptions {
  std::string path;     // of the part; empty: no trace, and the session is nothing
  std::string process;  // "worker 0"
  int number = 1;       // of the process in the trace
  int64_t first_step = 0, steps = 0;
  size_t events_per_thread = 32768;  // 112 bytes each
};

// Where the part of "server" or "worker-0" goes: into the run directory, or beside the trace of a
// job that has none (started by hand). Empty if the config asks for no trace.
std::string PartPath(const config::Config& config, const std::string& process);

SessionOptions ServerSession(const config::Config& config);
SessionOptions WorkerSession(const config::Config& config, uint32_t rank);

// Owner: main, before other threads start and after they are joined. Names the calling thread
// `thread`. The part is written in the destructor, after a failure too; what goes wrong with it is
// logged, and the launcher misses it.
class Session {
 public:
  Session(SessionOptions options, const std::string& thread);
  ~Session();
  Session(const Session&) = delete;

 private:
  const SessionOptions options_;
};

}  // namespace muster::trace
