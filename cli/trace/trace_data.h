// Reads traces: tracks of nested spans, and the steps of the compute threads.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace muster {

struct TraceSpan {
  std::string name, kind;
  double begin = 0, end = 0;  // microseconds
  int64_t step = -1, chunk = -1, rank = -1;
  int parent = -1;                                     // in the same track
  double inside = 0;                                   // microseconds of its direct children
  double own() const { return end - begin - inside; }  // microseconds without the children
};

// Whether the span only groups other spans.
bool IsFrame(const TraceSpan& span);

struct TraceTrack {
  std::string process, thread;
  std::vector<TraceSpan> spans;  // sorted by begin, outer spans first
  std::string Name() const { return process + ", " + thread; }
};

struct Trace {
  std::vector<TraceTrack> tracks;  // sorted by process, then thread
  uint64_t dropped = 0;
};

// Whether this is an event as a job's processes write it: all fields are present, with the types
// and bounds that readers rely on.
inline constexpr const char* kClockEvent = "muster_clock";  // see ClockLine
bool IsTraceEvent(const nlohmann::ordered_json& event);

// The event's number for "step", "chunk", "rank" or "spans"; -1 if it has none.
int64_t TraceArgument(const nlohmann::ordered_json& event, const char* key);

// Reads a file that MergeTrace wrote. Throws Error(kData) for anything else.
Trace ReadTrace(const std::string& path);

// Whether the span computes the network: forward, loss or backward.
bool IsLayerWork(const TraceSpan& span);

// One worker's step, from the beginning of its first layer to the beginning of the next step's.
struct WorkerStep {
  const TraceTrack* track;
  int64_t step;
  double begin, end;  // microseconds
  double work_end;    // of the last layer's backward
  double work;        // sum of the layers
  std::vector<const TraceSpan*> layers;
};

// The steps whose both ends are in the trace, except those followed by an evaluation. Sorted by
// step, then track.
std::vector<WorkerStep> WorkerSteps(const Trace& trace);

// Returns 0 if there are no values.
double MedianOf(std::vector<double> values);

}  // namespace muster
