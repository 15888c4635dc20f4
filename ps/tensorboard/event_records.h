// Reads and truncates the event files of earlier servers of a resumed run (common/base/records.h).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "proto/tensorboard.pb.h"

namespace muster {

// The contents of the existing event files of a run.
struct EarlierEvents {
  bool has_graph = false;
  // For each tag, the last step up to `most` that has a valid value; -1: none.
  std::map<std::string, int64_t> last_steps;
};
EarlierEvents ReadEarlierEvents(const std::string& dir, const std::vector<std::string>& tags,
                                int64_t most);

// Truncates Muster's event files in `dir` before the first record of a step after `steps_done`, or
// before an incomplete record: the resumed run writes these steps again to its own file. Never
// truncates after an unreadable record. Returns one message per failure.
std::vector<std::string> CutEvents(const std::string& dir, int64_t steps_done);

}  // namespace muster
