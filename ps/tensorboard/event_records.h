// The records of event files (TensorFlow's TFRecord), all numbers little-endian:
//
//   uint64 length · uint32 masked CRC-32C of these 8 bytes · the event · uint32 masked CRC-32C of
//   it
//
// and what a run that goes on makes of the files that are there.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "proto/tensorboard.pb.h"

namespace muster {

// One record.
std::string FrameRecord(const std::string& event);

// What the run's own event files in a directory have.
struct EarlierEvents {
  bool has_graph = false;
  // By tag: the last step, of those up to `most`, with a value of it that still counts; -1: none.
  std::map<std::string, int64_t> last_steps;
};
EarlierEvents ReadEarlierEvents(const std::string& dir, const std::vector<std::string>& tags,
                                int64_t most);

// Cuts the run's own event files in `dir` at the border of the first record of a step after
// `steps_done`, and before one that was not written to its end: a run that goes on from there
// writes these steps again, to a file of its own. A file is never cut behind something that cannot
// be read. Returns what could not be done, a line each.
std::vector<std::string> CutEvents(const std::string& dir, int64_t steps_done);

// CRC-32C (Castagnoli; RFC 3720, appendix B.4).
uint32_t Crc32c(std::string_view bytes);

// As it is stored: a CRC over bytes that hold CRCs would otherwise be no check of them.
uint32_t MaskedCrc32c(std::string_view bytes);

}  // namespace muster
