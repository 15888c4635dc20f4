#include "cli/trace/critical_path.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace muster {
namespace {

struct SpanOnTrack {
  const TraceTrack* track;
  const TraceSpan* span;
};

// Adds parts that are too short to be shown to the part before them, or at the beginning to the one
// after, and joins the parts of one thread that then follow each other.
std::vector<PathPart> Joined(std::vector<PathPart> parts) {
  std::vector<PathPart> joined;
  for (PathPart& part : parts) {
    if (joined.empty()) {
      joined.push_back(std::move(part));
      continue;
    }
    PathPart& before = joined.back();
    if (before.who == part.who) {
      for (const auto& [kind, us] : part.kinds) before.kinds[kind] += us;
      if (part.last != "other") before.last = part.last;
    } else if (part.total() < kLeastUs) {
      before.kinds["other"] += part.total();
    } else if (before.total() < kLeastUs) {
      part.kinds["other"] += before.total();
      before = std::move(part);
    } else {
      joined.push_back(std::move(part));
    }
  }
  return joined;
}

class Walk {
 public:
  // `begins`: when each compute thread begins the step; the path ends there.
  Walk(const Trace& trace, std::map<const TraceTrack*, double> begins)
      : trace_(trace), begins_(std::move(begins)) {}

  std::vector<PathPart> From(const TraceTrack& track, double time) {
    track_ = &track;
    time_ = time;
    // Each turn goes back in time or to another thread. The bound protects against damaged traces.
    for (int turns = 0; turns < 100000; ++turns) {
      const auto begin = begins_.find(track_);
      if (begin != begins_.end() && time_ <= begin->second) break;
      if (!Back()) break;
    }
    std::reverse(parts_.begin(), parts_.end());
    return Joined(std::move(parts_));
  }

 private:
  // Moves to the beginning of the span before time_ on this thread, or to what it waited for.
  bool Back() {
    const std::vector<TraceSpan>& spans = track_->spans;
    const auto after =
        std::lower_bound(spans.begin(), spans.end(), time_,
                         [](const TraceSpan& span, double time) { return span.begin < time; });
    if (after == spans.begin()) return false;
    // The innermost span at this time, and where its last child before this time ends.
    const TraceSpan* span = &*std::prev(after);
    double begin = span->begin;
    while (span != nullptr && span->end < time_) {
      begin = span->end;
      span = span->parent < 0 ? nullptr : &spans[static_cast<size_t>(span->parent)];
    }
    if (span == nullptr || IsFrame(*span)) {
      Take("other", "other", begin);
      return true;
    }
    if (span->kind == "update") return LeaveUpdate(*span);
    if (span->kind == "wait" && LeaveWait(*span)) return true;
    Take(span->kind, span->name, begin);
    return true;
  }

  bool LeaveWait(const TraceSpan& wait) {
    const SpanOnTrack cause = wait.chunk >= 0 ? Last("update", wait.step - 1, wait.chunk, time_)
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
    const SpanOnTrack push = Last("push", update.step, update.chunk, time_);
    const SpanOnTrack loss = Last("receive", update.step, -1, time_);
    const TraceSpan* before = nullptr;  // this thread's previous update
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

  // Moves from the server's receipt of a loss to the worker that sent it.
  bool LeaveLoss(const SpanOnTrack& loss) {
    const std::string worker = fmt::format("worker {}", loss.span->rank);
    for (const TraceTrack& track : trace_.tracks) {
      if (track.process != worker || track.thread != "compute") continue;
      Go(track, std::min(time_, loss.span->begin));
      return true;
    }
    return false;
  }

  // Among the matching spans that begin before `time`, the one that ends last.
  SpanOnTrack Last(const std::string& kind, int64_t step, int64_t chunk, double time) const {
    SpanOnTrack last{nullptr, nullptr};
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
    const std::string way = track.process == track_->process
                                ? track.process + " to server and back"
                                : fmt::format("{} to {}", track.process, track_->process);
    if (time < time_) Add(way, "in transit", "in transit", time);
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
      part.first = name;  // because the walk goes backwards
      if (part.last.empty() || part.last == "other") part.last = name;
    }
    time_ = begin;
  }

  const Trace& trace_;
  const std::map<const TraceTrack*, double> begins_;
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
  std::map<const TraceTrack*, double> begins;
  for (const WorkerStep& candidate : steps) {
    if (candidate.step != step) continue;
    if (last == nullptr || candidate.end > last->end) last = &candidate;
    begins[candidate.track] = candidate.begin;
  }
  if (last == nullptr) return {};
  return Walk(trace, std::move(begins)).From(*last->track, last->end);
}

}  // namespace muster
