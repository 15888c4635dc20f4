#include "common/events/event_log.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <istream>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/base/records.h"
#include "common/events/event_line.h"

namespace muster {
namespace {

// A `begun` at `to` undoes the steps of the records from `from` on.
struct UndoneSteps {
  int64_t from, to;  // positions
};

RecordsEnd ForEachLogged(std::istream& log, uint64_t first,
                         const std::function<void(const events::Event&, int64_t)>& visit) {
  return ForEachRecord(log, first, [&](std::string_view record, uint64_t at) {
    events::Event event;
    if (event.ParseFromArray(record.data(), static_cast<int>(record.size()))) {
      visit(event, static_cast<int64_t>(at - first));
    }
    return true;
  });
}

}  // namespace

bool IsDurable(const events::Event& event) {
  switch (event.kind_case()) {
    case events::Event::kListening:
    case events::Event::kRefused:
    case events::Event::kWaiting:
    case events::Event::kProgress:
    case events::Event::kSaving:
    case events::Event::kBeat:
    case events::Event::KIND_NOT_SET:
      return false;
    default:
      return true;
  }
}

std::string LogRecord(events::Event event) {
  MakeUtf8(event);
  return FrameRecord(event.SerializeAsString());
}

bool ForEachStanding(std::istream& log, uint64_t first,
                     const std::function<void(const events::Event&, int64_t position)>& visit) {
  std::vector<UndoneSteps> undone;
  const RecordsEnd end = ForEachLogged(log, first, [&](const events::Event& event, int64_t at) {
    if (event.has_begun()) undone.push_back({.from = event.begun().position(), .to = at});
  });
  if (undone.empty()) return false;
  // Whether any later one reaches back to a record is then one comparison.
  for (size_t i = undone.size() - 1; i > 0; --i) {
    undone[i - 1].from = std::min(undone[i - 1].from, undone[i].from);
  }
  auto next = undone.begin();
  ForEachLogged(log, first, [&](const events::Event& event, int64_t at) {
    if (first + static_cast<uint64_t>(at) >= end.at) return;  // the log has grown meanwhile
    while (next != undone.end() && next->to <= at) ++next;
    const bool of_steps = event.has_log() || event.has_evaluation() || event.has_summary();
    if (!of_steps || next == undone.end() || next->from > at) visit(event, at);
  });
  return true;
}

std::optional<events::Status> ReadStatusPage(const std::string& path) {
  std::optional<events::Status> newest;
  for (const uint64_t page : {uint64_t{0}, kStatusPage}) {
    ForEachRecord(
        path, page,
        [&](std::string_view record, uint64_t at) {
          events::Status status;
          if (at == page && status.ParseFromArray(record.data(), static_cast<int>(record.size())) &&
              (!newest || status.number() > newest->number())) {
            newest = std::move(status);
          }
          return false;
        },
        kStatusPage);
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
