#include "cli/trace/trace_data.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "common/base/error.h"
#include "common/base/json_text.h"
#include "common/base/plain_file.h"
#include "common/base/resource_limits.h"

namespace muster {
namespace {

// Scopes nest: the parent is the innermost span that is still open.
void FindParents(std::vector<TraceSpan>& spans) {
  std::stable_sort(spans.begin(), spans.end(), [](const TraceSpan& a, const TraceSpan& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
  });
  std::vector<int> open;
  for (size_t i = 0; i < spans.size(); ++i) {
    while (!open.empty() && spans[static_cast<size_t>(open.back())].end <= spans[i].begin) {
      open.pop_back();
    }
    if (!open.empty()) {
      spans[i].parent = open.back();
      TraceSpan& parent = spans[static_cast<size_t>(open.back())];
      parent.inside += spans[i].end - spans[i].begin;
    }
    open.push_back(static_cast<int>(i));
  }
}

// A number that no trace of ours has.
struct Foreign {};

int IdOf(const nlohmann::json& value) {
  if (!value.is_number_integer() || !std::in_range<int>(value.get<int64_t>())) throw Foreign();
  return value.get<int>();
}

double TimeOf(const nlohmann::json& value) {
  constexpr double kMostMicroseconds = 1e15;
  const double time = value.get<double>();
  if (!(std::abs(time) <= kMostMicroseconds)) throw Foreign();
  return time;
}

// -1 where there is none.
int64_t ArgumentOf(const nlohmann::json& args, const char* key) {
  const auto found = args.find(key);
  if (found == args.end()) return -1;
  if (!found->is_number_integer()) throw Foreign();
  return std::max<int64_t>(-1, found->get<int64_t>());
}

TraceSpan SpanOf(const nlohmann::json& event) {
  const nlohmann::json args = event.value("args", nlohmann::json::object());
  TraceSpan span;
  span.name = event.at("name");
  span.kind = event.at("cat");
  span.begin = TimeOf(event.at("ts"));
  span.end = span.begin + TimeOf(event.at("dur"));
  span.step = ArgumentOf(args, "step");
  span.chunk = ArgumentOf(args, "chunk");
  span.rank = ArgumentOf(args, "rank");
  return span;
}

}  // namespace

bool IsFrame(const TraceSpan& span) {
  return span.kind == "step" || span.kind == "slice" || span.kind == "evaluate";
}

Trace ReadTrace(const std::string& path) {
  std::ifstream in = ReadPlainFile(path);
  if (!in) throw Error(ExitCode::kData, "{}: {}", path, ErrorText(errno));
  std::ostringstream text;
  text << in.rdbuf();
  const auto foreign = [&](const char* found) {
    return Error(ExitCode::kData,
                 "{}: expected a trace written by `muster launch --trace`, found {}", path, found);
  };
  try {
    const nlohmann::json file = ParseJson(text.str());
    if (file.is_discarded()) throw foreign("something that is not JSON, or cut off");
    std::map<int, std::string> processes;
    std::map<std::pair<int, int>, TraceTrack> tracks;
    Trace trace;
    trace.dropped = static_cast<uint64_t>(
        std::max<int64_t>(0, ArgumentOf(file.at("otherData"), "dropped_spans")));
    for (const nlohmann::json& event : file.at("traceEvents")) {
      const std::pair<int, int> key{IdOf(event.at("pid")), IdOf(event.at("tid"))};
      if (event.at("ph") == "X") tracks[key].spans.push_back(SpanOf(event));
      if (event.at("name") == "process_name") processes[key.first] = event.at("args").at("name");
      if (event.at("name") == "thread_name") tracks[key].thread = event.at("args").at("name");
    }
    for (auto& [key, track] : tracks) {
      track.process = processes[key.first];
      FindParents(track.spans);
      trace.tracks.push_back(std::move(track));
    }
    return trace;
  } catch (const nlohmann::json::exception&) {  // a field is missing, or of another type
    throw foreign("JSON of another kind");
  } catch (const Foreign&) {
    throw foreign("numbers that are none of a trace");
  }
}

}  // namespace muster
