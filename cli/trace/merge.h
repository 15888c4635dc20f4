// Puts the parts that the processes of a job have written together into one trace.
//
// The result is the JSON object format of the Trace Event Format: the parts' events, with times
// from the first span on, and arrows (flow events) from each push of a chunk to its update, and
// from there to the workers that waited for the new weights.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace muster {

struct MergedTrace {
  size_t spans = 0;
  uint64_t dropped = 0;              // did not fit into the buffers
  std::vector<std::string> missing;  // parts that could not be read
};

// Throws Error(kUsage) where no trace can be written to `path`: no such directory, no permission,
// something else than a file in the way.
void CheckTracePath(const std::string& path);

// Whether the file begins as one of MergeTrace's does: it may be replaced by another.
bool LooksLikeTrace(const std::string& path);

// What else than whole parts of one job is an error.
enum class MergeMode {
  // After a run: a part that is missing or cut off gives what it has; what was at `path` goes.
  kTakeWhatThereIs,
  // What a person has named: every part must hold an event, and a file that is at `path` already
  // must be a trace. Error(kData) otherwise, with nothing written.
  kRefuseOthers,
};

// Replaces `path` atomically. Throws Error(kFailure) where `path` cannot be written, for which the
// parts are left untouched.
MergedTrace MergeTrace(const std::vector<std::string>& parts, const std::string& path,
                       MergeMode mode = MergeMode::kTakeWhatThereIs);

}  // namespace muster
