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

// Replaces invalid UTF-8, because libprotobuf prints to stderr for each string that is not UTF-8.
void MakePlain(protobuf::Message& message) {
  const protobuf::Reflection& reflection = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE) {
      // JSON has no such numbers: protobuf writes them as text, which other programs may not
      // expect.
      const bool kept = field->containing_type() == events::Scores::descriptor();
      if (!kept && !std::isfinite(reflection.GetDouble(message, field)))
        reflection.ClearField(&message, field);
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
      reflection.SetString(&message, field, ValidUtf8(reflection.GetString(message, field)));
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && !field->is_repeated()) {
      MakePlain(*reflection.MutableMessage(&message, field));
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      for (int i = 0; i < reflection.FieldSize(message, field); ++i) {
        MakePlain(*reflection.MutableRepeatedMessage(&message, field, i));
      }
    }
  }
}

}  // namespace

std::string EventLine(const events::Event& event) {
  events::Event valid = event;
  MakePlain(valid);
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
