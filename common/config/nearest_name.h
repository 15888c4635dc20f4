// Names that somebody may have meant.
#pragma once

#include <google/protobuf/descriptor.h>

#include <string>
#include <vector>

namespace muster {

// The one of `candidates` that `name` most likely means, or "" if none is near.
std::string NearestName(const std::string& name, const std::vector<std::string>& candidates);

// What to say of a name that is none of these: "did you mean …", with all of them.
std::string SuggestName(const std::string& name, const std::vector<std::string>& candidates);

// The keys of a message.
std::vector<std::string> FieldNames(const google::protobuf::Descriptor* type);

// What to say of a key that the message does not have: what to write instead of a word that is
// familiar from PyTorch or Keras (lr, batch_size, kernel_size), or the nearest key.
std::string UnknownKey(const google::protobuf::Descriptor* type, const std::string& name);

}  // namespace muster
