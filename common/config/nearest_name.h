// Suggests correct names for misspelled ones.
#pragma once

#include <google/protobuf/descriptor.h>

#include <string>
#include <vector>

namespace muster {

// The candidate that is closest to `name`; "" if none is close.
std::string NearestName(const std::string& name, const std::vector<std::string>& candidates);

// The text for an unknown name: "did you mean …", followed by all candidates.
std::string SuggestName(const std::string& name, const std::vector<std::string>& candidates);

// The keys of a message.
std::vector<std::string> FieldNames(const google::protobuf::Descriptor* type);

// The message for an unknown key: what to write instead of a PyTorch or Keras word (lr, batch_size,
// kernel_size), or the nearest key.
std::string UnknownKey(const google::protobuf::Descriptor* type, const std::string& name);

}  // namespace muster
