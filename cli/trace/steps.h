// The traced steps as the compute threads went through them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/trace/trace_data.h"

namespace muster {

// Arithmetic of the network: forward, loss, backward.
bool IsLayerWork(const TraceSpan& span);

// One worker's step: from the beginning of its first layer to that of the next step's.
struct WorkerStep {
  const TraceTrack* track;
  int64_t step;
  double begin, end;  // microseconds
  double work_end;    // of the last layer's backward
  double work;        // sum of the layers
  std::vector<const TraceSpan*> layers;
};

// The steps of which both ends are in the trace, without those that an evaluation follows, by step,
// then track.
std::vector<WorkerStep> WorkerSteps(const Trace& trace);

// Without order; 0 of nothing.
double MedianOf(std::vector<double> values);

}  // namespace muster
