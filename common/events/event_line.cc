#include "common/events/event_line.h"

#include <google/protobuf/util/json_util.h>

#include <cmath>
#include <vector>

#include "common/base/error.h"
#include "common/base/text.h"

namespace muster {
namespace {

namespace protobuf = google::protobuf;
using protobuf::FieldDescriptor;

constexpr size_t kQuotedBytes = 80;  // of an unreadable line

// Calls visit(message, field) for each field that is set, also of messages inside.
template <typename Visit>
void ForEachField(protobuf::Message& message, const Visit& visit) {
  const protobuf::Reflection& reflection = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) {
      visit(message, field);
    } else if (!field->is_repeated()) {
      ForEachField(*reflection.MutableMessage(&message, field), visit);
    } else {
      for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
        ForEachField(*reflection.MutableRepeatedMessage(&message, field, i), visit);
      }
    }
  }
}

// JSON has no such numbers: protobuf writes them as text, which other programs may not expect.
void DropNonfinite(protobuf::Message& message) {
  ForEachField(message, [](protobuf::Message& part, const FieldDescriptor* field) {
    if (field->cpp_type() != FieldDescriptor::CPPTYPE_DOUBLE ||
        field->containing_type() == events::Scores::descriptor()) {
      return;
    }
    const protobuf::Reflection& reflection = *part.GetReflection();
    if (!std::isfinite(reflection.GetDouble(part, field))) reflection.ClearField(&part, field);
  });
}

}  // namespace

void MakeUtf8(protobuf::Message& message) {
  ForEachField(message, [](protobuf::Message& part, const FieldDescriptor* field) {
    if (field->type() != FieldDescriptor::TYPE_STRING) return;
    const protobuf::Reflection& reflection = *part.GetReflection();
    if (!field->is_repeated()) {
      reflection.SetString(&part, field, ValidUtf8(reflection.GetString(part, field)));
      return;
    }
    for (int i = 0; i < reflection.FieldSize(part, field); ++i) {
      const std::string text = reflection.GetRepeatedString(part, field, i);
      reflection.SetRepeatedString(&part, field, i, ValidUtf8(text));
    }
  });
}

std::string EventLine(const events::Event& event) {
  events::Event valid = event;
  MakeUtf8(valid);
  DropNonfinite(valid);
  protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string line;
  const auto status = protobuf::util::MessageToJsonString(valid, &line, options);
  MUSTER_CHECK(status.ok());
  return line + "\n";
}

events::Event ParseEventLine(std::string_view line) {
  protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  events::Event event;
  const auto status =
      protobuf::util::JsonStringToMessage({line.data(), line.size()}, &event, options);
  if (!status.ok()) {
    throw Error(ExitCode::kFailure,
                "expected an event from the server (proto/events.proto) as a JSON object, got {} "
                "bytes: {}{}",
                line.size(), Printable(line.substr(0, kQuotedBytes)),
                line.size() > kQuotedBytes ? " …" : "");
  }
  return event;
}

}  // namespace muster
