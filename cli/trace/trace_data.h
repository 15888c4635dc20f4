// A trace as its reader sees it: tracks of nested spans, and the traced steps as the compute
// threads went through them.
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
  double inside = 0;                                   // the time of the spans directly within
  double own() const { return end - begin - inside; }  // microseconds without what lies within
};

// Holds other spans together and does nothing of its own.
bool IsFrame(const TraceSpan& span);

struct TraceTrack {
  std::string process, thread;
  std::vector<TraceSpan> spans;  // by begin, the outer one first
  std::string Name() const { return process + ", " + thread; }
};

struct Trace {
  std::vector<TraceTrack> tracks;  // by process, then thread
  uint64_t dropped = 0;
};

// Whether it is an event of the Trace Event Format as the processes of a job write them: its fields
// are there, and of the types and within the bounds that whoever reads it relies on.
bool IsTraceEvent(const nlohmann::ordered_json& event);

// The number that such an event has for "step", "chunk", "rank" or "spans"; -1 if it has none.
int64_t TraceArgument(const nlohmann::ordered_json& event, const char* key);

// Reads a file that MergeTrace wrote. Throws Error(kData) for anything else.
Trace ReadTrace(const std::string& path);

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
