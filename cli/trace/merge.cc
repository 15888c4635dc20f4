#include "cli/trace/merge.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>

#include "cli/trace/trace_data.h"
#include "common/base/atomic_file.h"
#include "common/base/error.h"
#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/resource_limits.h"

namespace muster {
namespace {

using OrderedJson = nlohmann::ordered_json;

// Every trace begins with this.
constexpr std::string_view kBeginning = R"({"displayTimeUnit":"ms","otherData":)";

bool IsSpan(const OrderedJson& event) { return event["ph"] == "X"; }

// Reads the events of one part. The last line may be truncated if the process was killed. Returns
// 0, or the errno if the file cannot be read.
int ReadPart(const std::string& path, std::vector<OrderedJson>& events) {
  std::ifstream in = ReadPlainFile(path);
  if (!in) return errno != 0 ? errno : EIO;
  bool first = true;
  double ahead_us = 0;
  for (std::string line; std::getline(in, line);) {
    // The merged trace nests each event two levels deeper.
    OrderedJson event = ParseOrderedJson(line, kMostJsonNesting - 2);
    const bool is_event = IsTraceEvent(event);
    const bool is_clock = is_event && event["name"] == kClockEvent;
    if (is_clock) ahead_us = event["args"]["ahead_us"];
    if (is_event && event["ph"] != "M") event["ts"] = event["ts"].get<double>() - ahead_us;
    if (is_event && !is_clock) events.push_back(std::move(event));
    // If the first line is not an event, this is a different file. A merged trace would have events
    // only further down.
    if (std::exchange(first, false) && !is_event) break;
  }
  return 0;
}

// The end of the span at which an arrow touches it.
enum class Side { kBegin, kEnd };
OrderedJson Arrow(const char* phase, const char* name, int64_t id, const OrderedJson& span,
                  Side side) {
  const double duration = span["dur"];
  const double at = side == Side::kBegin ? 0 : std::max(0.0, duration - 0.001);
  OrderedJson arrow{{"ph", phase},
                    {"pid", span["pid"]},
                    {"tid", span["tid"]},
                    {"ts", span["ts"].get<double>() + at},
                    {"name", name},
                    {"cat", "chunk"},
                    {"id", id}};
  if (*phase == 'f') arrow["bp"] = "e";
  return arrow;
}

// push (step v, chunk c) → update (v, c) → wait (v + 1, c).
void AddArrows(std::vector<OrderedJson>& events) {
  using Key = std::pair<int64_t, int64_t>;  // step, chunk
  std::map<Key, OrderedJson> updates;
  for (const OrderedJson& event : events) {
    if (IsSpan(event) && event["cat"] == "update") {
      updates.emplace(Key{TraceArgument(event, "step"), TraceArgument(event, "chunk")}, event);
    }
  }
  std::vector<OrderedJson> arrows;
  int64_t id = 0;
  const auto connect = [&](const char* name, const OrderedJson& from, const OrderedJson& to) {
    OrderedJson begin = Arrow("s", name, ++id, from, Side::kBegin);
    OrderedJson end = Arrow("f", name, id, to, name[0] == 'g' ? Side::kBegin : Side::kEnd);
    if (begin["ts"] > end["ts"]) return;
    arrows.push_back(std::move(begin));
    arrows.push_back(std::move(end));
  };
  for (const OrderedJson& event : events) {
    if (!IsSpan(event) || TraceArgument(event, "chunk") < 0 || TraceArgument(event, "step") < 0)
      continue;
    const bool push = event["cat"] == "push", wait = event["cat"] == "wait";
    if (!push && !wait) continue;
    const auto update = updates.find(
        {TraceArgument(event, "step") - (wait ? 1 : 0), TraceArgument(event, "chunk")});
    if (update == updates.end()) continue;
    push ? connect("gradient", event, update->second) : connect("weights", update->second, event);
  }
  std::move(arrows.begin(), arrows.end(), std::back_inserter(events));
}

std::string Text(const std::vector<OrderedJson>& events, const MergedTrace& merged) {
  double origin = 0;
  bool first = true;
  for (const OrderedJson& event : events) {
    if (!IsSpan(event)) continue;
    if (first || event["ts"] < origin) origin = event["ts"];
    first = false;
  }
  std::string text = std::string(kBeginning) +
                     JsonText(OrderedJson{{"clock", "CLOCK_MONOTONIC"},
                                          {"origin_us", origin},
                                          {"dropped_spans", merged.dropped},
                                          {"missing_parts", merged.missing}}) +
                     ",\n\"traceEvents\":[\n";
  for (OrderedJson event : events) {
    if (event["ph"] != "M") {
      // Round to nanoseconds, so that nested spans still nest when they are read back.
      event["ts"] = std::round((event["ts"].get<double>() - origin) * 1e3) / 1e3;
    }
    text += JsonText(event) + ",\n";
  }
  if (!events.empty()) text.erase(text.size() - 2, 1);
  return text + "]}\n";
}

// Protects a file that the user named by mistake instead of the trace, such as a part.
void CheckReplaceable(const std::string& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) return;  // new, or writing will report the error
  try {
    (void)ReadTrace(path);
  } catch (const Error& error) {
    throw Error(error.code(), "{}; it was not changed: choose another file for the trace",
                error.what());
  }
}

}  // namespace

void CheckTracePath(const std::string& path) {
  try {
    (void)AtomicFile(path);
  } catch (const Error& error) {
    throw Error(ExitCode::kUsage, "cannot write the trace: {}; choose another file with --trace",
                error.what());
  }
}

std::string ClockLine(int number, double ahead_s) {
  return JsonText(OrderedJson{{"ph", "M"},
                              {"pid", number},
                              {"tid", 0},
                              {"ts", 0},
                              {"name", kClockEvent},
                              {"args", {{"ahead_us", 1e6 * ahead_s}}}});
}

void RequireTracePlace(const std::string& path) { RequireReplaceable("--trace", path, kBeginning); }

MergedTrace MergeTrace(const std::vector<std::string>& parts, const std::string& path,
                       MergeMode mode) {
  const bool strict = mode == MergeMode::kRefuseOthers;
  MergedTrace merged;
  std::vector<OrderedJson> events;
  for (const std::string& part : parts) {
    const size_t before = events.size();
    const int error = ReadPart(part, events);
    if (error != 0) merged.missing.push_back(part);
    if (!strict || events.size() > before) continue;
    throw Error(ExitCode::kData,
                "{}: expected a part that a process of a traced run wrote (trace.server.part, "
                "trace.worker-0.part …), found {}; {} was not written",
                part, error == 0 ? "another file" : ErrorText(error), path);
  }
  if (strict) CheckReplaceable(path);
  for (const OrderedJson& event : events) {
    if (IsSpan(event)) ++merged.spans;
    if (event["name"] == "muster_dropped") {
      merged.dropped += static_cast<uint64_t>(std::max<int64_t>(0, TraceArgument(event, "spans")));
    }
  }
  AddArrows(events);
  WriteFileAtomically(path, Text(events, merged));
  return merged;
}

}  // namespace muster
