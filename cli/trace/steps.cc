#include "cli/trace/steps.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <set>

namespace muster {

bool IsLayerWork(const TraceSpan& span) {
  return span.kind == "forward" || span.kind == "loss" || span.kind == "backward";
}

std::vector<WorkerStep> WorkerSteps(const Trace& trace) {
  std::vector<WorkerStep> steps;
  for (const TraceTrack& track : trace.tracks) {
    std::map<int64_t, std::vector<const TraceSpan*>> layers;
    std::set<int64_t> evaluated;  // versions: an evaluation comes between the step before and this
    for (const TraceSpan& span : track.spans) {
      // An evaluation's layers belong to no step.
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
