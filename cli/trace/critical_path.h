// The critical path of a step: a chain of spans, each of which waited for the one before.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "cli/trace/trace_data.h"

namespace muster {

constexpr double kLeastUs = 5;  // anything shorter would be shown as 0.00 ms

// A part of the path on one thread, or between two.
struct PathPart {
  std::string who;                      // "worker 1, compute", "worker 1 to server"
  std::string first, last;              // names of its first and last span
  std::map<std::string, double> kinds;  // kind → microseconds
  double total() const;
};

// Walks backwards to the beginning of `step`, starting at the worker that begins the next step
// last. A wait for a chunk leads to its update. An update leads to the push or the loss that
// completed it, or to the update before it on that thread. A wait for an order leads to the last
// loss. Parts too short to be shown are joined to others. Returns the parts in order of time; empty
// if the trace lacks a part of the step.
std::vector<PathPart> CriticalPath(const Trace& trace, const std::vector<WorkerStep>& steps,
                                   int64_t step);

}  // namespace muster
