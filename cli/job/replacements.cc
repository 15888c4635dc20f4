#include "cli/job/replacements.h"

#include <fmt/core.h>

#include <algorithm>
#include <csignal>

#include "cli/text/units.h"

namespace muster {
namespace {

// The time for a lost process to end by itself and report why.
constexpr double kLastWordsSeconds = 1;
// The delay before a refused worker is restarted: the time that its rank has been without a worker,
// within these limits.
constexpr double kFirstAgainSeconds = 0.1;
constexpr double kMostAgainSeconds = 1;
// The delay before another start after one has failed: it doubles from the first to the last.
constexpr double kFirstPauseSeconds = 1;
constexpr double kLongestPauseSeconds = 60;
// Workers that end within this time because another process failed count as one loss.
constexpr double kTogetherSeconds = 5;
// The server notices a loss after silence_s at the latest, and checks every second.
constexpr double kNoticeMargin = 3;

// Removes and returns the keys whose time has come.
template <typename Key>
std::vector<Key> TakeDue(std::map<Key, double>& times, double now) {
  std::vector<Key> due;
  std::erase_if(times, [&](const auto& entry) {
    if (now < entry.second) return false;
    due.push_back(entry.first);
    return true;
  });
  return due;
}

}  // namespace

void Replacements::OnChange(const events::MemberChange& change, double now) {
  if (!plan_.owns_workers()) return;
  const WorkerId worker(static_cast<int>(change.rank()), static_cast<pid_t>(change.pid()));
  if (change.kind() == events::MemberChange::LEFT) left_.insert(worker);
  if (change.kind() == events::MemberChange::JOINED) Joins(worker.rank);
  if (change.kind() != events::MemberChange::LOST || ended_.contains(worker)) return;
  lost_.insert(worker);
  outside_.insert(worker.rank);
  condemned_.emplace(worker, now + kLastWordsSeconds);
}

void Replacements::OnStarted(const events::Started& started) {
  for (const events::Started::Worker& worker : started.workers()) {
    Joins(static_cast<int>(worker.rank()));
  }
}

void Replacements::Joins(int rank) {
  outside_.erase(rank);
  starting_.erase(rank);
  pauses_.erase(rank);
}

// Whether the server refused this worker because it had not noticed yet that the rank is free.
bool Replacements::CameTooEarly(const EndedProcess& ended, double now) const {
  if (ended.end.by_signal || ended.end.value != static_cast<int>(ExitCode::kRefused)) return false;
  const auto lost = last_lost_.find(ended.rank);
  return lost != last_lost_.end() &&
         now - lost->second <= plan_.config->deadlines().silence_s() + kNoticeMargin;
}

// Whether a worker that failed may be replaced. One that fails at the start would fail again, for
// example because GPU memory or a library is missing.
bool Replacements::MayFailHere() const {
  return has_begun_ || plan_.config->cluster().on_lost_worker() == config::Cluster::CONTINUE;
}

// A failure that would also hit the replacement ends the job.
bool Replacements::MayEnd(const EndedProcess& ended, double now) const {
  if (plan_.config->cluster().on_lost_worker() == config::Cluster::ABORT) return false;
  if (!ended.lost_host.empty()) return MayFailHere();
  if (ended.end.by_signal) return true;
  switch (static_cast<ExitCode>(ended.end.value)) {
    case ExitCode::kOk:
      if (HasLeft(ended)) return true;
      // At the end of the run all workers end like this, just before the server reports completion.
      return IsLost(ended) && MayFailHere();
    case ExitCode::kUsage:
    case ExitCode::kData:
    case ExitCode::kNonfinite:
      return false;
    case ExitCode::kRefused:
      return CameTooEarly(ended, now);
    case ExitCode::kFailure:
      return MayFailHere();
    default:
      return true;
  }
}

Replacements::Answer Replacements::OnEnd(const EndedProcess& ended, double now) {
  condemned_.erase(ended);
  // Others that work have shown that the job itself is sound.
  const bool fails_to_start = FailsToStart(ended);
  const bool is_no_loss = fails_to_start && OthersWork(ended.rank);
  if (!is_no_loss && !MayEnd(ended, now)) return Answer::kFatal;
  // If the launcher killed it, or its host is gone, the server knows the real cause of the loss.
  const bool killed = (ended.end.asked && ended.end.by_signal && ended.end.value == SIGKILL) ||
                      !ended.lost_host.empty();
  ended_.insert(ended);
  ends_[ended.pid] = killed ? "" : EndText(ended.end);
  if (plan_.config->cluster().on_lost_worker() == config::Cluster::CONTINUE || HasLeft(ended)) {
    return Answer::kGoesOn;
  }
  if (!members_.CanReplace(ended.rank)) return Answer::kGoesOn;
  if (CameTooEarly(ended, now)) {
    const double without = now - last_lost_.at(ended.rank);
    again_at_[ended.rank] = now + std::clamp(without, kFirstAgainSeconds, kMostAgainSeconds);
    return Answer::kGoesOn;
  }
  const char* const kTooEarly = "it ended before it joined";
  if (is_no_loss) {
    Postpone(ended.rank, kTooEarly, now);
    return Answer::kGoesOn;
  }
  std::erase_if(lost_at_,
                [&](double at) { return now - at > plan_.config->cluster().restart_window_s(); });
  // A lost relay takes all of its workers with it.
  const bool is_victim =
      !ended.end.by_signal && ended.end.value == static_cast<int>(ExitCode::kPeerFailed);
  const bool together = !lost_at_.empty() && now - lost_at_.back() <= kTogetherSeconds;
  if (!is_victim || !together) lost_at_.push_back(now);
  if (lost_at_.size() > plan_.config->cluster().max_restarts()) return Answer::kTooMany;
  last_lost_[ended.rank] = now;
  if (fails_to_start) {
    Postpone(ended.rank, kTooEarly, now);
  } else {
    Replace(ended.rank, now);
  }
  return Answer::kGoesOn;
}

// Whether it is a replacement that could not even join: it gets no threads, or its script is being
// replaced.
bool Replacements::FailsToStart(const EndedProcess& ended) const {
  if (!has_begun_ || !starting_.contains(ended.rank)) return false;
  if (ended.end.asked || !ended.lost_host.empty()) return false;
  if (ended.end.by_signal) return true;
  switch (static_cast<ExitCode>(ended.end.value)) {
    case ExitCode::kOk:
    case ExitCode::kDeadline:
    case ExitCode::kPeerFailed:
    case ExitCode::kRefused:
      return false;
    default:
      return true;
  }
}

bool Replacements::OthersWork(int rank) const {
  for (size_t i = 0; i < members_.size(); ++i) {
    const int other = members_.rank(i);
    if (other >= 0 && other != rank && members_.running(i) && !IsOutside(other)) return true;
  }
  return false;
}

bool Replacements::TryLater(const EndedProcess& not_started, double now) {
  if (!last_lost_.contains(not_started.rank)) return false;
  Postpone(not_started.rank, not_started.not_started, now);
  return true;
}

void Replacements::Postpone(int rank, const std::string& why, double now) {
  double& pause = pauses_[rank];
  const double before = pause;
  pause = std::clamp(2 * before, kFirstPauseSeconds, kLongestPauseSeconds);
  again_at_[rank] = now + pause;
  if (pause == before) return;  // the same once more
  warn_(fmt::format("cannot replace rank {}: {}; trying again in {}", rank, why,
                    FormatDuration(pause)));
}

void Replacements::Replace(int rank, double now) {
  try {
    members_.Replace(rank);
  } catch (const StartError& error) {
    return Postpone(rank, error.what(), now);
  }
  for (size_t i = 0; i < members_.size(); ++i) {
    if (members_.rank(i) != rank) continue;
    Forget({rank, members_.pid(i)});
    outside_.insert(rank);
    starting_.insert(rank);
  }
}

// The system may give a new process the PID of one that has ended. How that one ended stays known.
void Replacements::Forget(const WorkerId& worker) {
  condemned_.erase(worker);
  for (std::set<WorkerId>* const set : {&left_, &lost_, &ended_}) set->erase(worker);
}

void Replacements::StartAgain(bool wanted, double now) {
  if (!wanted) again_at_.clear();
  for (const int rank : TakeDue(again_at_, now)) {
    if (members_.CanReplace(rank)) Replace(rank, now);
  }
}

void Replacements::EndOutsiders() {
  for (size_t i = 0; i < members_.size(); ++i) {
    if (IsOutside(members_.rank(i))) members_.Signal(i, SIGKILL);
  }
}

JobFailure Replacements::TooMany(const EndedProcess& ended, const std::string& how) const {
  return {.code = CodeOf(ended.end),
          .rank = static_cast<uint32_t>(ended.rank),
          .what = fmt::format("{}; lost more than {} within {} (cluster.max_restarts)", how,
                              Plural(int64_t{plan_.config->cluster().max_restarts()}, "worker"),
                              FormatDuration(plan_.config->cluster().restart_window_s()))};
}

void Replacements::Check(double now) {
  for (const WorkerId& worker : TakeDue(condemned_, now)) {
    for (size_t i = 0; i < members_.size(); ++i) {
      if (worker == WorkerId(members_.rank(i), members_.pid(i))) members_.Signal(i, SIGKILL);
    }
  }
}

double Replacements::next_check() const {
  double next = kNever;
  for (const auto& [worker, at] : condemned_) next = std::min(next, at);
  for (const auto& [rank, at] : again_at_) next = std::min(next, at);
  return next;
}

}  // namespace muster
