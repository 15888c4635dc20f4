#include "common/config/range_check.h"

#include <fmt/core.h>

#include <cmath>

#include "common/base/join.h"
#include "common/base/utf8.h"
#include "common/config/for_types.h"
#include "common/config/number_range.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

namespace pb = google::protobuf;

double Number(const pb::Message& message, const pb::FieldDescriptor* field, int index) {
  const pb::Reflection* r = message.GetReflection();
  const bool list = field->is_repeated();
  switch (field->cpp_type()) {
    case pb::FieldDescriptor::CPPTYPE_INT64:
      return static_cast<double>(list ? r->GetRepeatedInt64(message, field, index)
                                      : r->GetInt64(message, field));
    case pb::FieldDescriptor::CPPTYPE_UINT64:
      return static_cast<double>(list ? r->GetRepeatedUInt64(message, field, index)
                                      : r->GetUInt64(message, field));
    case pb::FieldDescriptor::CPPTYPE_UINT32:
      return list ? r->GetRepeatedUInt32(message, field, index) : r->GetUInt32(message, field);
    case pb::FieldDescriptor::CPPTYPE_INT32:
      return list ? r->GetRepeatedInt32(message, field, index) : r->GetInt32(message, field);
    case pb::FieldDescriptor::CPPTYPE_FLOAT:
      return list ? r->GetRepeatedFloat(message, field, index) : r->GetFloat(message, field);
    case pb::FieldDescriptor::CPPTYPE_DOUBLE:
      return list ? r->GetRepeatedDouble(message, field, index) : r->GetDouble(message, field);
    default:
      return 0;
  }
}

void CheckNumber(const pb::FieldDescriptor* field, const std::string& key, double value,
                 const ConfigPlaces& places) {
  const config::Limits& limits = field->options().GetExtension(config::limits);
  const bool ok = std::isfinite(value) && !(limits.has_min() && value < limits.min()) &&
                  !(limits.has_max() && value > limits.max()) &&
                  !(limits.has_above() && value <= limits.above()) &&
                  !(limits.has_below() && value >= limits.below());
  if (ok) return;
  // As it was typed: 0.1f is not 0.1 as a double.
  const bool single = field->cpp_type() == pb::FieldDescriptor::CPPTYPE_FLOAT;
  places.Fail(key, "expected {}, got {}", RangeText(*field),
              single ? fmt::format("{}", static_cast<float>(value)) : fmt::format("{}", value));
}

void CheckText(const pb::FieldDescriptor* field, const std::string& key, const std::string& text,
               const ConfigPlaces& places) {
  if (text.find('\0') != std::string::npos) {
    places.Fail(key, "expected text, got a zero byte in it");
    return;
  }
  const size_t good = Utf8Prefix(text);
  if (good == text.size() || field->options().GetExtension(config::limits).path()) return;
  places.Fail(key, "expected UTF-8 text, got the byte 0x{:02x} after \"{}\"",
              static_cast<uint8_t>(text[good]), text.substr(0, good));
}

void CheckType(const pb::Message& message, const pb::FieldDescriptor* field, const std::string& key,
               const ConfigPlaces& places) {
  if (IsForType(message, *field)) return;
  // The place of an element, which is where a list is written.
  places.Fail(field->is_repeated() ? key + "[0]" : key, "contradicts type {}: it is for type {}",
              TypeName(message), Join(TypesOf(*field), ", "));
}

void CheckMessage(const pb::Message& message, const std::string& path, const ConfigPlaces& places) {
  const pb::Descriptor* type = message.GetDescriptor();
  const pb::Reflection* reflection = message.GetReflection();
  for (int f = 0; f < type->field_count(); ++f) {
    const pb::FieldDescriptor* field = type->field(f);
    const std::string key = path + field->name();
    const int count = field->is_repeated() ? reflection->FieldSize(message, field)
                                           : reflection->HasField(message, field);
    if (count == 0 && field->options().GetExtension(config::limits).required()) {
      places.Fail(key, "missing: expected a value");
    }
    if (count > 0) CheckType(message, field, key, places);
    for (int i = 0; i < count; ++i) {
      const std::string element = field->is_repeated() ? fmt::format("{}[{}]", key, i) : key;
      if (field->message_type() != nullptr) {
        CheckMessage(field->is_repeated() ? reflection->GetRepeatedMessage(message, field, i)
                                          : reflection->GetMessage(message, field),
                     element + ".", places);
      } else if (field->cpp_type() == pb::FieldDescriptor::CPPTYPE_STRING) {
        CheckText(field, element,
                  field->is_repeated() ? reflection->GetRepeatedString(message, field, i)
                                       : reflection->GetString(message, field),
                  places);
      } else if (field->cpp_type() != pb::FieldDescriptor::CPPTYPE_BOOL &&
                 field->cpp_type() != pb::FieldDescriptor::CPPTYPE_ENUM) {
        CheckNumber(field, element, Number(message, field, i), places);
      }
    }
  }
}

}  // namespace

void CheckRanges(const config::Config& config, const ConfigPlaces& places) {
  CheckMessage(config, "", places);
}

}  // namespace muster
