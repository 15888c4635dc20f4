#include "launch/trace/critical_path.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace muster {
namespace {

struct Place {
  const TraceTrack* track;
  const TraceSpan* span;
};

class Walk {
 public:
  explicit Walk(const Trace& trace) : trace_(trace) {}

  std::vector<PathPart> From(const TraceTrack& track, double time, double until) {
    track_ = &track;
    time_ = time;
    // Each turn goes back in time or leads to another thread; the bound is for damaged traces.
    for (int turns = 0; time_ > until && turns < 100000; ++turns) {
      if (!Back()) break;
    }
    std::reverse(parts_.begin(), parts_.end());
    return std::move(parts_);
  }

 private:
  // To the beginning of what this thread does before time_, or to what it waited for.
  bool Back() {
    const TraceSpan* span = nullptr;
    for (const TraceSpan& candidate : track_->spans) {
      if (candidate.begin >= time_) break;
      if (candidate.leaf) span = &candidate;
    }
    if (span == nullptr) return false;
    if (span->end < time_) {
      Take("other", "other", span->end);
      return true;
    }
    if (span->kind == "update") return LeaveUpdate(*span);
    if (span->kind == "wait" && LeaveWait(*span)) return true;
    Take(span->kind, span->name, span->begin);
    return true;
  }

  bool LeaveWait(const TraceSpan& wait) {
    const Place cause = wait.chunk >= 0 ? Last("update", wait.step - 1, wait.chunk, time_)
                                        : Last("receive", wait.step, -1, time_);
    if (cause.span == nullptr || cause.span->end <= wait.begin) return false;
    if (wait.chunk >= 0) {
      Go(*cause.track, cause.span->end);
      return true;
    }
    return LeaveLoss(cause);
  }

  bool LeaveUpdate(const TraceSpan& update) {
    Take("update", update.name, update.begin);
    const Place push = Last("push", update.step, update.chunk, time_);
    const Place loss = Last("receive", update.step, -1, time_);
    const TraceSpan* before = nullptr;  // what this thread did until then
    for (const TraceSpan& span : track_->spans) {
      if (span.kind == "update" && span.end <= time_) before = &span;
    }
    const double pushed = push.span ? std::min(push.span->end, time_) : -1;
    const double heard = loss.span ? std::min(loss.span->end, time_) : -1;
    if (before != nullptr && before->end > pushed && before->end > heard) {
      Take("other", "other", before->end);
      return true;
    }
    if (heard > pushed) return LeaveLoss(loss);
    if (push.span == nullptr) return false;
    Go(*push.track, pushed);
    return true;
  }

  // From the server's receiving of a loss to the worker that sent it.
  bool LeaveLoss(const Place& loss) {
    const std::string worker = fmt::format("worker {}", loss.span->rank);
    for (const TraceTrack& track : trace_.tracks) {
      if (track.process != worker || track.thread != "compute") continue;
      Go(track, std::min(time_, loss.span->begin));
      return true;
    }
    return false;
  }

  // The one that ends last of those that have begun before `time`.
  Place Last(const std::string& kind, int64_t step, int64_t chunk, double time) const {
    Place last{nullptr, nullptr};
    for (const TraceTrack& track : trace_.tracks) {
      for (const TraceSpan& span : track.spans) {
        if (span.begin >= time) break;
        if (span.kind != kind || span.step != step || span.chunk != chunk) continue;
        if (last.span == nullptr || span.end > last.span->end) last = {&track, &span};
      }
    }
    return last;
  }

  void Go(const TraceTrack& track, double time) {
    const std::string way = fmt::format("{} to {}", track.process, track_->process);
    if (time < time_) Add(way, "on the way", "on the way", time);
    track_ = &track;
    time_ = std::min(time_, time);
  }

  void Take(const std::string& kind, const std::string& name, double begin) {
    Add(track_->Name(), kind, name, begin);
  }

  void Add(const std::string& who, const std::string& kind, const std::string& name, double begin) {
    if (parts_.empty() || parts_.back().who != who) parts_.push_back({.who = who});
    PathPart& part = parts_.back();
    part.kinds[kind] += time_ - begin;
    if (kind != "other" || part.last.empty()) {
      part.first = name;  // going backwards
      if (part.last.empty() || part.last == "other") part.last = name;
    }
    time_ = begin;
  }

  const Trace& trace_;
  const TraceTrack* track_ = nullptr;
  double time_ = 0;
  std::vector<PathPart> parts_;
};

}  // namespace

double PathPart::total() const {
  double sum = 0;
  for (const auto& [kind, us] : kinds) sum += us;
  return sum;
}

std::vector<PathPart> CriticalPath(const Trace& trace, const std::vector<WorkerStep>& steps,
                                   int64_t step) {
  const WorkerStep* last = nullptr;
  double begin = 0;
  for (const WorkerStep& candidate : steps) {
    if (candidate.step != step) continue;
    if (last == nullptr || candidate.end > last->end) last = &candidate;
    begin = begin == 0 ? candidate.begin : std::min(begin, candidate.begin);
  }
  if (last == nullptr) return {};
  return Walk(trace).From(*last->track, last->end, begin);
}

}  // namespace muster
