// Merges the parts that a job's processes wrote into one trace, in the JSON object format of the
// Trace Event Format. Times count from the first span. Arrows (flow events) lead from each push of
// a chunk to its update, and from there to the workers that waited for the new weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace muster {

struct MergedTrace {
  size_t spans = 0;
  uint64_t dropped = 0;              // number of spans that did not fit into the buffers
  std::vector<std::string> missing;  // parts that could not be read
};

// Throws Error(kUsage) if no trace can be written to `path`: no such directory, no permission, or
// not a regular file.
void CheckTracePath(const std::string& path);

// Throws Error(kUsage) if it would overwrite a file that is not a trace. Writes nothing.
void RequireTracePlace(const std::string& path);

// A line of a part from another host: the events of the part are this many seconds ahead of others.
// `number` is that of its process.
std::string ClockLine(int number, double ahead_s);

enum class MergeMode {
  // Used by the launcher. Takes whatever truncated parts contain, skips missing parts, and replaces
  // any file at `path`.
  kTakeWhatThereIs,
  // Used for files that the user named. Every part must contain an event, and an existing file at
  // `path` must be a trace. Otherwise throws Error(kData) and writes nothing.
  kRefuseOthers,
};

// Replaces `path` atomically. Throws Error(kFailure) if `path` cannot be written. Never changes the
// parts.
MergedTrace MergeTrace(const std::vector<std::string>& parts, const std::string& path,
                       MergeMode mode = MergeMode::kTakeWhatThereIs);

}  // namespace muster
