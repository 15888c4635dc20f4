// The numbers that a setting may have, in words. From its type and its (limits) in the schema.
#pragma once

#include <google/protobuf/descriptor.h>

#include <string>

namespace muster {

bool IsNumber(const google::protobuf::FieldDescriptor& field);

// "a whole number from 1 to 1,024 (processes)", "a number above 0, at most 86,400 (seconds)".
std::string RangeText(const google::protobuf::FieldDescriptor& field);

}  // namespace muster
