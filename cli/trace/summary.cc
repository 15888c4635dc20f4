#include "cli/trace/summary.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "cli/text/units.h"
#include "cli/trace/critical_path.h"
#include "cli/trace/trace_data.h"
#include "common/base/text.h"

namespace muster {
namespace {

constexpr size_t kGapsShown = 8;

struct Window {
  double begin = 0, end = 0;
  double length() const { return end - begin; }
};

// Returns the time of the steps, without what server and prefetch threads record after the last
// one.
Window WindowOf(const Trace& trace) {
  Window window;
  bool any = false;
  for (const TraceTrack& track : trace.tracks) {
    for (const TraceSpan& span : track.spans) {
      if (span.kind != "step") continue;
      window.begin = any ? std::min(window.begin, span.begin) : span.begin;
      window.end = any ? std::max(window.end, span.end) : span.end;
      any = true;
    }
  }
  return window;
}

// The part of a span's own time that lies in the window, assuming that it is spread evenly.
double Inside(const TraceSpan& span, const Window& window) {
  const double length = span.end - span.begin;
  const double covered = std::min(span.end, window.end) - std::max(span.begin, window.begin);
  return length <= 0 || covered <= 0 ? 0 : span.own() * covered / length;
}

// Counts the layers of an evaluation as "evaluate", not as training.
std::string KindOf(const TraceTrack& track, const TraceSpan& span) {
  for (int p = span.parent; p >= 0; p = track.spans[static_cast<size_t>(p)].parent) {
    if (track.spans[static_cast<size_t>(p)].kind == "evaluate") return "evaluate";
  }
  return span.kind == "evaluate" ? span.kind : IsFrame(span) ? "other" : span.kind;
}

// Returns the times in descending order.
std::vector<std::pair<double, std::string>> Descending(const std::map<std::string, double>& times) {
  std::vector<std::pair<double, std::string>> order;
  order.reserve(times.size());
  for (const auto& [name, us] : times) order.emplace_back(us, name);
  std::sort(order.rbegin(), order.rend());
  return order;
}

std::string ShareLine(const TraceTrack& track, const Window& window) {
  std::map<std::string, double> kinds;
  double busy = 0;
  for (const TraceSpan& span : track.spans) {
    const double us = Inside(span, window);
    kinds[KindOf(track, span)] += us;
    busy += us;
  }
  kinds["idle"] = std::max(0.0, window.length() - busy);
  std::vector<std::string> texts;
  for (const auto& [us, kind] : Descending(kinds)) {
    const double share = us / window.length();
    if (share >= 0.0005) texts.push_back(fmt::format("{} {}", kind, FormatPercent(share, 1)));
  }
  return fmt::format("  {:<24} {}", track.Name(), Join(texts, ", "));
}

// The time between two layers of one compute thread.
struct Gap {
  const TraceTrack* track;
  const TraceSpan *before, *after;
  double length() const { return after->begin - before->end; }
};

std::string GapText(const Gap& gap) {
  const std::vector<TraceSpan>& spans = gap.track->spans;
  const auto label = [](const TraceSpan& span) { return IsFrame(span) ? "other" : span.name; };
  std::map<std::string, double> within{{"other", gap.length()}};
  for (const TraceSpan& span : spans) {
    const double us = std::min(span.end, gap.after->begin) - std::max(span.begin, gap.before->end);
    if (us <= 0) continue;
    within[label(span)] += us;
    within[span.parent < 0 ? "other" : label(spans[static_cast<size_t>(span.parent)])] -= us;
  }
  std::vector<std::string> texts;
  for (const auto& [us, name] : Descending(within)) {
    if (texts.size() < 3 && us >= 0.05 * gap.length()) {
      texts.push_back(fmt::format("{} {}", name, FormatMilliseconds(us / 1e3)));
    }
  }
  return Join(texts, ", ");
}

void AddGaps(const std::vector<WorkerStep>& steps, std::vector<std::string>& lines) {
  std::vector<Gap> gaps;
  double sum = 0, length = 0;
  for (const WorkerStep& step : steps) {
    length += step.end - step.begin;
    for (size_t i = 0; i + 1 < step.layers.size(); ++i) {
      gaps.push_back({step.track, step.layers[i], step.layers[i + 1]});
    }
    // The gap to the next step's first layer.
    for (const WorkerStep& next : steps) {
      if (next.track != step.track || next.step != step.step + 1) continue;
      gaps.push_back({step.track, step.layers.back(), next.layers.front()});
    }
    sum += step.end - step.begin - step.work;
  }
  if (gaps.empty()) return;
  std::sort(gaps.begin(), gaps.end(),
            [](const Gap& a, const Gap& b) { return a.length() > b.length(); });
  gaps.resize(std::min(gaps.size(), kGapsShown));
  lines.push_back("");
  lines.push_back(fmt::format("Longest gaps between layers (all gaps: {} of the step)",
                              FormatPercent(sum / length, 1)));
  for (const Gap& gap : gaps) {
    lines.push_back(fmt::format("  {:>8}  {}, step {}: {} to {} ({})",
                                FormatMilliseconds(gap.length() / 1e3), gap.track->process,
                                gap.before->step, gap.before->name, gap.after->name, GapText(gap)));
  }
}

// Times of different processes are comparable, because they share one clock.
void AddOverlap(const Trace& trace, const std::vector<WorkerStep>& steps,
                std::vector<std::string>& lines) {
  std::map<int64_t, double> work_end, next_begin, last_push;
  std::map<int64_t, std::vector<const TraceSpan*>> updates;
  for (const WorkerStep& step : steps) {
    work_end[step.step] = std::max(work_end[step.step], step.work_end);
    next_begin[step.step] = std::max(next_begin[step.step], step.end);
  }
  for (const TraceTrack& track : trace.tracks) {
    for (const TraceSpan& span : track.spans) {
      if (span.kind == "update") updates[span.step].push_back(&span);
      if (span.kind == "push") last_push[span.step] = std::max(last_push[span.step], span.begin);
    }
  }
  std::vector<double> hidden, answer, ahead, update_time;
  for (const auto& [step, end] : work_end) {
    if (updates[step].empty()) continue;
    double inside = 0, all = 0, last = 0;
    for (const TraceSpan* update : updates[step]) {
      all += update->end - update->begin;
      inside += std::clamp(end - update->begin, 0.0, update->end - update->begin);
      last = std::max(last, update->end);
    }
    update_time.push_back(all / 1e3);
    hidden.push_back(all > 0 ? inside / all : 0);
    answer.push_back((next_begin[step] - last_push[step]) / 1e3);
    ahead.push_back((last - next_begin[step]) / 1e3);
  }
  if (hidden.empty()) return;
  lines.push_back("");
  lines.push_back("Overlap (medians over the steps)");
  lines.push_back(
      fmt::format("  {} of the {} of updates is done before the last backward pass ends",
                  FormatPercent(MedianOf(hidden), 1), FormatMilliseconds(MedianOf(update_time))));
  lines.push_back(fmt::format(
      "  the last worker begins the next step {} after the last push begins, {}",
      FormatMilliseconds(MedianOf(answer)),
      MedianOf(ahead) > 0 ? FormatMilliseconds(MedianOf(ahead)) + " before the last update ends"
                          : FormatMilliseconds(-MedianOf(ahead)) + " after the last update ends"));
}

void AddCriticalPath(const Trace& trace, const std::vector<WorkerStep>& steps,
                     std::vector<std::string>& lines) {
  std::map<int64_t, double> lengths;  // length of each step on its slowest worker
  for (const WorkerStep& step : steps) {
    lengths[step.step] = std::max(lengths[step.step], step.end - step.begin);
  }
  std::vector<double> all;
  for (const auto& [step, us] : lengths) all.push_back(us);
  const double median = MedianOf(all);
  for (const auto& [step, us] : lengths) {
    if (us != median) continue;
    lines.push_back("");
    lines.push_back(fmt::format("Critical path of step {}, which took the median time ({})", step,
                                FormatMilliseconds(us / 1e3)));
    for (const PathPart& part : CriticalPath(trace, steps, step)) {
      std::vector<std::string> kinds;
      for (const auto& [time, kind] : Descending(part.kinds)) {
        if (time < std::max(kLeastUs, 0.001 * part.total())) continue;
        kinds.push_back(fmt::format("{} {}", kind, FormatMilliseconds(time / 1e3)));
      }
      lines.push_back(fmt::format(
          "  {:>8}  {}: {}", FormatMilliseconds(part.total() / 1e3), part.who,
          part.first == part.last
              ? part.first
              : fmt::format("{} to {} ({})", part.first, part.last, Join(kinds, ", "))));
    }
    return;
  }
}

}  // namespace

std::vector<std::string> TraceSummary(const Trace& trace) {
  const Window window = WindowOf(trace);
  if (window.length() <= 0) return {"The trace contains no steps: see launch --trace-steps."};
  const std::vector<WorkerStep> steps = WorkerSteps(trace);
  std::set<int64_t> numbers;
  for (const TraceTrack& track : trace.tracks) {
    for (const TraceSpan& span : track.spans) {
      if (span.kind == "step") numbers.insert(span.step);
    }
  }
  std::vector<std::string> lines{fmt::format("Steps {} to {}, {}", *numbers.begin(),
                                             *numbers.rbegin(),
                                             FormatMilliseconds(window.length() / 1e3))};
  if (trace.dropped > 0) {
    lines.push_back(fmt::format("{} did not fit into the buffers: trace fewer steps",
                                Plural(static_cast<int64_t>(trace.dropped), "span")));
  }
  lines.push_back("");
  lines.push_back("Share of time, by thread");
  for (const TraceTrack& track : trace.tracks) {
    if (!track.spans.empty()) lines.push_back(ShareLine(track, window));
  }
  AddOverlap(trace, steps, lines);
  AddGaps(steps, lines);
  AddCriticalPath(trace, steps, lines);
  return lines;
}

}  // namespace muster
