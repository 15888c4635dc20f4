#include "common/events/event_log.h"

#include <google/protobuf/util/json_util.h>

#include <string_view>

#include "common/base/error.h"
#include "common/base/records.h"

namespace muster {

std::optional<events::Status> ReadStatusPage(const std::string& path) {
  std::optional<events::Status> newest;
  for (const uint64_t page : {uint64_t{0}, kStatusPage}) {
    ForEachRecord(path, page, [&](std::string_view record, uint64_t at) {
      events::Status status;
      if (at == page && status.ParseFromArray(record.data(), static_cast<int>(record.size())) &&
          (!newest || status.number() > newest->number())) {
        newest = std::move(status);
      }
      return false;
    });
  }
  return newest;
}

std::string StatusJson(const events::Status& status) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string json;
  MUSTER_CHECK(google::protobuf::util::MessageToJsonString(status, &json, options).ok());
  return json;
}

}  // namespace muster
