// Words of other frameworks that newcomers write, and what Muster calls them.
#pragma once

#include <google/protobuf/descriptor.h>

#include <string>

namespace muster {

// What to write instead of this unknown key in a message of type `in`; "" if nothing is known.
std::string InsteadOf(const google::protobuf::Descriptor* in, const std::string& key);

}  // namespace muster
