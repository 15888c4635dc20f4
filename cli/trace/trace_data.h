// A trace as its reader sees it: tracks of nested spans.
#pragma once

#include <cstdint>
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

// Reads a file that MergeTrace wrote. Throws Error(kData) for anything else.
Trace ReadTrace(const std::string& path);

}  // namespace muster
