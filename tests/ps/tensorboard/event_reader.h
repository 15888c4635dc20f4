// Reads an event file as TensorBoard does, without it: lengths, checksums, messages.
#pragma once

#include <string>
#include <vector>

#include "proto/tensorboard.pb.h"

namespace muster::testing {

// All events of the one events.out.tfevents.… in `dir`, or of this file. Adds a failure for
// whatever is wrong.
std::vector<tensorboard::Event> ReadEvents(const std::string& dir);
std::vector<tensorboard::Event> ReadEventFile(const std::string& path);

// The values of a scalar, or of another kind, in the order in which they were written.
struct TaggedValue {
  int64_t step;
  tensorboard::Summary::Value value;
};
std::vector<TaggedValue> ValuesOf(const std::vector<tensorboard::Event>& events,
                                  const std::string& tag);

}  // namespace muster::testing
