#include "cli/job/told_losses.h"

#include <algorithm>

#include "cli/job/stop_stages.h"

namespace muster {
namespace {

// The kernel ends a process after it has closed its connections, and writes its core in between.
constexpr double kUntilItHasEnded = 0.5;

}  // namespace

void ToldLosses::Tell(const events::Event& lost, double now) {
  waiting_.push_back({.event = lost, .until = wait_ ? now + kUntilItHasEnded : now});
  Check(now);
}

void ToldLosses::Check(double now, bool all) {
  std::erase_if(waiting_, [&](Waiting& one) {
    events::MemberChange& change = *one.event.mutable_member_change();
    const auto end = replacements_.ends().find(change.pid());
    const bool known = end != replacements_.ends().end();
    if (!known && !all && now < one.until) return false;
    if (known) change.set_why(change.why() + " (" + end->second + ")");
    display_.OnEvent(one.event);
    return true;
  });
}

double ToldLosses::next_check() const {
  double next = kNever;
  for (const Waiting& one : waiting_) next = std::min(next, one.until);
  return next;
}

}  // namespace muster
