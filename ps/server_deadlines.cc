// Nobody waits for ever: the deadline of each phase, and who missed it.
#include <algorithm>

#include "common/base/join.h"
#include "common/base/log.h"
#include "ps/server.h"

namespace muster {
namespace {

std::chrono::steady_clock::duration Seconds(double s) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(
      std::chrono::duration<double>(s));
}

}  // namespace

// Time in which this process did not run counts against nobody: what came meanwhile has not been
// read yet, and the workers may have been stopped with it.
void Server::Forgive(Clock::duration own_gap) {
  if (own_gap == Clock::duration::zero()) return;
  if (own_gap > std::chrono::seconds(2)) {  // else only a busy machine
    LogWarning("this process looked at nothing for {:.1f} s; deadlines begin that much later",
               std::chrono::duration<double>(own_gap).count());
  }
  began_ = WithoutGap(began_, own_gap);
  step_deadline_began_ = WithoutGap(step_deadline_began_, own_gap);
  if (evaluation_) evaluation_->Forgive(own_gap);
  for (uint32_t rank = 0; rank < roster_.size(); ++rank) {
    auto& heard = roster_.at(rank).last_heard;
    heard = WithoutGap(heard, own_gap);
  }
}

void Server::CheckDeadlines() {
  const Clock::time_point now = Clock::now();
  const config::Deadlines& deadlines = config_.deadlines();
  const auto missed = [&](const std::vector<uint32_t>& ranks, const std::string& what,
                          double limit) {
    throw Error(ExitCode::kDeadline, "{} from {} within {:g} s (step {})", what, Names(ranks),
                limit, step_);
  };
  if (phase_ == Phase::kGathering) {
    const double waited = std::chrono::duration<double>(now - began_).count();
    if (waited > deadlines.start_s()) {
      throw Error(ExitCode::kDeadline,
                  "{} of {} workers did not join within {:g} s: rank {} missing",
                  roster_.MissingRanks().size(), roster_.size(), deadlines.start_s(),
                  Join(roster_.MissingRanks(), ", "));
    }
    if (now >= next_waiting_) {
      next_waiting_ = now + std::chrono::seconds(5);
      LogInfo("waiting for rank {} ({:.0f} s)", Join(roster_.MissingRanks(), ", "), waited);
      reporter_.Waiting(roster_.MissingRanks(), waited);
    }
  } else if (phase_ == Phase::kPreparing) {
    std::vector<uint32_t> late;
    for (uint32_t rank = 0; rank < roster_.size(); ++rank) {
      if (!roster_.at(rank).ready) late.push_back(rank);
    }
    if (now - step_deadline_began_ > Seconds(deadlines.first_step_s()))
      missed(late, "no Ready", deadlines.first_step_s());
  } else if (evaluation_ && (phase_ == Phase::kStopping || evaluation_->version() == step_)) {
    const auto since = std::max(evaluation_->last_progress(), step_deadline_began_);
    if (now - since > Seconds(deadlines.progress_s()))
      missed(evaluation_->MissingRanks(), "no evaluation", deadlines.progress_s());
  } else if (phase_ == Phase::kTraining) {
    const double limit =
        progress_.steps() == 0
            ? deadlines.first_step_s()
            : std::max(deadlines.step_s(), deadlines.step_median_factor() * progress_.MedianStep());
    if (now - step_deadline_began_ > Seconds(limit)) {
      std::vector<uint32_t> late;
      for (uint32_t rank = 0; rank < roster_.size(); ++rank) {
        for (int64_t s = 0; s < plan_.slices; ++s) {
          if (losses_.Has(s) || !assignment_.Holds(rank, s)) continue;
          late.push_back(rank);
          break;
        }
      }
      if (!late.empty()) missed(late, "no loss", limit);
      missed(aggregator_.MissingRanks(), "no complete gradient", limit);
    }
  }
  for (uint32_t rank = 0; rank < roster_.size(); ++rank) {
    const Member& member = roster_.at(rank);
    if (member.peer && now - member.last_heard > Seconds(deadlines.silence_s())) {
      blamed_ = rank;
      throw Error(ExitCode::kDeadline, "{} was lost at step {}: silent for {:g} s",
                  roster_.Name(rank), step_, deadlines.silence_s());
    }
  }
}

std::string Server::Names(const std::vector<uint32_t>& ranks) const {
  std::vector<std::string> names;
  names.reserve(ranks.size());
  for (const uint32_t rank : ranks) names.push_back(roster_.Name(rank));
  return Join(names, ", ");
}

}  // namespace muster
