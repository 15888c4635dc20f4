#include "common/config/number_range.h"

#include <fmt/core.h>

#include <limits>

#include "proto/config.pb.h"

namespace muster {
namespace {

using google::protobuf::FieldDescriptor;

// What the type itself allows.
template <typename T>
std::pair<std::string, std::string> BoundsOf() {
  return {fmt::format("{}", std::numeric_limits<T>::min()),
          fmt::format("{}", std::numeric_limits<T>::max())};
}

std::pair<std::string, std::string> TypeBounds(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_UINT32:
      return BoundsOf<uint32_t>();
    case FieldDescriptor::CPPTYPE_UINT64:
      return BoundsOf<uint64_t>();
    case FieldDescriptor::CPPTYPE_INT32:
      return BoundsOf<int32_t>();
    case FieldDescriptor::CPPTYPE_INT64:
      return BoundsOf<int64_t>();
    default:
      return {};
  }
}

}  // namespace

bool IsNumber(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_UINT32:
    case FieldDescriptor::CPPTYPE_UINT64:
    case FieldDescriptor::CPPTYPE_INT32:
    case FieldDescriptor::CPPTYPE_INT64:
    case FieldDescriptor::CPPTYPE_FLOAT:
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return true;
    default:
      return false;
  }
}

std::string RangeText(const FieldDescriptor& field) {
  const config::Limits& limits = field.options().GetExtension(config::limits);
  auto [least, most] = TypeBounds(field);
  std::string text = least.empty() ? "a number" : "a whole number";
  const auto add = [&](const std::string& words) {
    text += (text.ends_with("number") ? ", " : " and ") + words;
  };
  if (limits.has_min()) least = fmt::format("{}", limits.min());
  if (limits.has_max()) most = fmt::format("{}", limits.max());
  if (!least.empty() && !limits.has_above()) add("at least " + least);
  if (limits.has_above()) add(fmt::format("more than {}", limits.above()));
  if (!most.empty() && !limits.has_below()) add("at most " + most);
  if (limits.has_below()) add(fmt::format("less than {}", limits.below()));
  if (text == "a number") text = "a finite number";
  return limits.has_unit() ? fmt::format("{} ({})", text, limits.unit()) : text;
}

}  // namespace muster
