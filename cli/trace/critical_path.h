// Why a step took as long as it did: the chain of spans, each of which waited for the one before.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cli/trace/trace_data.h"

namespace muster {

// A stretch of the path on one thread, or on the way between two.
struct PathPart {
  std::string who;                      // "worker 1, compute", "worker 1 to server"
  std::string first, last;              // names of its first and last span
  std::map<std::string, double> kinds;  // microseconds
  double total() const;
};

// Backwards from the worker that begins the step after `step` last, to the beginning of `step`:
// a wait for a chunk leads to its update, an update to the push or the loss that completed it (or
// to the update before it on that thread), a wait for an order to the last loss. In the order of
// time. Empty where the trace does not hold that step whole.
std::vector<PathPart> CriticalPath(const Trace& trace, const std::vector<WorkerStep>& steps,
                                   int64_t step);

}  // namespace muster
