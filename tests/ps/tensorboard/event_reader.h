// Reads an event file as TensorBoard does: lengths, checksums, messages.
#pragma once

#include <string>
#include <vector>

#include "proto/tensorboard.pb.h"

namespace muster::testing {

// All events of the only events.out.tfevents.… in `dir`, or of this file. Adds a failure for each
// error.
std::vector<tensorboard::Event> ReadEvents(const std::string& dir);
std::vector<tensorboard::Event> ReadEventFile(const std::string& path);

// The values of a scalar or another kind, in file order.
struct TaggedValue {
  int64_t step;
  tensorboard::Summary::Value value;
};
std::vector<TaggedValue> ValuesOf(const std::vector<tensorboard::Event>& events,
                                  const std::string& tag);

}  // namespace muster::testing
