// The records of event files (TensorFlow's TFRecord). All numbers are little-endian:
//
//   uint64 length · uint32 masked CRC-32C of the length · event · uint32 masked CRC-32C of the
//   event
//
// Also reads and truncates the files of earlier servers of a resumed run.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "proto/tensorboard.pb.h"

namespace muster {

std::string FrameRecord(const std::string& event);

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

// CRC-32C (Castagnoli; RFC 3720, appendix B.4).
uint32_t Crc32c(std::string_view bytes);

// The form in which TFRecord stores a CRC, because a CRC of data that contains CRCs is unreliable.
uint32_t MaskedCrc32c(std::string_view bytes);

}  // namespace muster
