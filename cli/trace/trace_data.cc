#include "cli/trace/trace_data.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <utility>

#include "common/base/error.h"
#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/resource_limits.h"

namespace muster {
namespace {

// Spans nest, so the parent is the innermost span that is still open.
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

using OrderedJson = nlohmann::ordered_json;

// Thrown for a number that our traces cannot contain.
struct Foreign {};

int IdOf(const OrderedJson& value) {
  if (!value.is_number_integer() || !std::in_range<int>(value.get<int64_t>())) throw Foreign();
  return value.get<int>();
}

double TimeOf(const OrderedJson& value) {
  constexpr double kMostMicroseconds = 1e15;  // small enough that sums stay finite
  const double time = value.get<double>();
  if (!(std::abs(time) <= kMostMicroseconds)) throw Foreign();
  return time;
}

TraceSpan SpanOf(const OrderedJson& event) {
  TraceSpan span;
  span.name = event.at("name");
  span.kind = event.at("cat");
  span.begin = TimeOf(event.at("ts"));
  const double duration = TimeOf(event.at("dur"));
  if (duration < 0) throw Foreign();
  span.end = span.begin + duration;
  span.step = TraceArgument(event, "step");
  span.chunk = TraceArgument(event, "chunk");
  span.rank = TraceArgument(event, "rank");
  return span;
}

}  // namespace

bool IsFrame(const TraceSpan& span) {
  return span.kind == "step" || span.kind == "slice" || span.kind == "evaluate";
}

int64_t TraceArgument(const OrderedJson& event, const char* key) {
  const auto args = event.find("args");
  return args == event.end() ? -1 : std::max<int64_t>(-1, args->value(key, int64_t{-1}));
}

bool IsTraceEvent(const OrderedJson& event) {
  try {
    const std::string phase = event.at("ph"), name = event.at("name");
    (void)IdOf(event.at("pid"));
    (void)IdOf(event.at("tid"));
    const OrderedJson args = event.value("args", OrderedJson::object());
    for (const char* key : {"step", "chunk", "rank", "spans"}) {
      if (args.contains(key) && !args.at(key).is_number_integer()) return false;
    }
    if (name == "process_name" || name == "thread_name") {
      (void)args.at("name").get_ref<const std::string&>();
    }
    if (phase != "M") (void)TimeOf(event.at("ts"));
    if (name == kClockEvent) (void)TimeOf(args.at("ahead_us"));
    if (phase == "X") (void)SpanOf(event);
    return args.is_object();
  } catch (const OrderedJson::exception&) {  // a field is missing, or of another type
    return false;
  } catch (const Foreign&) {
    return false;
  }
}

Trace ReadTrace(const std::string& path) {
  std::ifstream in = ReadPlainFile(path);
  if (!in) throw Error(ExitCode::kData, "{}: {}", path, ErrorText(errno));
  std::ostringstream text;
  text << in.rdbuf();
  const auto foreign = [&](const char* found) {
    return Error(ExitCode::kData,
                 "{}: expected a trace that `muster launch --trace` wrote, found {}", path, found);
  };
  const OrderedJson file = ParseOrderedJson(text.str());
  if (file.is_discarded()) throw foreign("a file that is truncated or not JSON");
  try {
    std::map<int, std::string> processes;
    std::map<std::pair<int, int>, TraceTrack> tracks;
    Trace trace;
    trace.dropped = file.at("otherData").value("dropped_spans", uint64_t{0});
    for (const OrderedJson& event : file.at("traceEvents")) {
      if (!IsTraceEvent(event)) throw foreign("other JSON");
      const std::pair key{event["pid"].get<int>(), event["tid"].get<int>()};
      if (event["ph"] == "X") tracks[key].spans.push_back(SpanOf(event));
      if (event["name"] == "process_name") processes[key.first] = event["args"]["name"];
      if (event["name"] == "thread_name") tracks[key].thread = event["args"]["name"];
    }
    for (auto& [key, track] : tracks) {
      track.process = processes[key.first];
      FindParents(track.spans);
      trace.tracks.push_back(std::move(track));
    }
    return trace;
  } catch (const OrderedJson::exception&) {  // a field is missing, or of another type
    throw foreign("other JSON");
  }
}

bool IsLayerWork(const TraceSpan& span) {
  return span.kind == "forward" || span.kind == "loss" || span.kind == "backward";
}

std::vector<WorkerStep> WorkerSteps(const Trace& trace) {
  std::vector<WorkerStep> steps;
  for (const TraceTrack& track : trace.tracks) {
    std::map<int64_t, std::vector<const TraceSpan*>> layers;
    std::set<int64_t> evaluated;  // steps that an evaluation precedes
    for (const TraceSpan& span : track.spans) {
      if (span.kind == "evaluate") evaluated.insert(span.step);
      bool training = false;
      for (int p = span.parent; p >= 0; p = track.spans[static_cast<size_t>(p)].parent) {
        training |= track.spans[static_cast<size_t>(p)].kind == "step";
      }
      if (training && IsLayerWork(span)) layers[span.step].push_back(&span);
    }
    for (auto at = layers.begin(); at != layers.end(); ++at) {
      const auto next = std::next(at);
      if (next == layers.end() || next->first != at->first + 1) continue;
      if (evaluated.count(next->first) > 0) continue;
      WorkerStep step{.track = &track,
                      .step = at->first,
                      .begin = at->second.front()->begin,
                      .end = next->second.front()->begin,
                      .work_end = at->second.back()->end,
                      .work = 0,
                      .layers = at->second};
      for (const TraceSpan* span : step.layers) step.work += span->end - span->begin;
      steps.push_back(std::move(step));
    }
  }
  std::stable_sort(steps.begin(), steps.end(),
                   [](const WorkerStep& a, const WorkerStep& b) { return a.step < b.step; });
  return steps;
}

double MedianOf(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace muster
