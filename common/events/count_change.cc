#include "common/events/count_change.h"

namespace muster {
namespace {

constexpr int kMostKept = 50;

}  // namespace

void CountChange(const events::MemberChange& change, events::Summary& summary) {
  switch (change.kind()) {
    case events::MemberChange::LOST:
      summary.set_workers_lost(summary.workers_lost() + 1);
      break;
    case events::MemberChange::LEFT:
      summary.set_workers_left(summary.workers_left() + 1);
      break;
    case events::MemberChange::JOINED:
      summary.set_workers_joined(summary.workers_joined() + 1);
      break;
    default:
      summary.set_workers_fenced(summary.workers_fenced() + 1);
  }
  if (summary.changes_size() < kMostKept) *summary.add_changes() = change;
}

}  // namespace muster
