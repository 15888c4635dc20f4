#include "ps/member_changes.h"

#include <fmt/core.h>

#include "common/base/log.h"

namespace muster {
namespace {

std::string Plural(int64_t count, const char* noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

const char* Verb(events::MemberChange::Kind kind) {
  switch (kind) {
    case events::MemberChange::LOST:
      return "was lost";
    case events::MemberChange::LEFT:
      return "has left";
    case events::MemberChange::JOINED:
      return "takes part";
    case events::MemberChange::FENCED:
      return "begins anew";
    default:
      return "changed";
  }
}

}  // namespace

std::string TextOf(const events::MemberChange& change) {
  std::string text =
      fmt::format("rank {} (host {}, pid {}) {} at step {}", change.rank(), change.host(),
                  change.pid(), Verb(change.kind()), change.at().step());
  if (!change.why().empty()) text += ": " + change.why();
  if (change.slices() > 0)
    text += fmt::format("; others compute {}", Plural(change.slices(), "slice"));
  if (change.blocks() > 0) {
    text += fmt::format("; others evaluate {}", Plural(change.blocks(), "block"));
  }
  return text + fmt::format("; {} now", Plural(change.workers(), "worker"));
}

void MemberChanges::Tell(events::MemberChange change) {
  const std::string text = TextOf(change);
  switch (change.kind()) {
    case events::MemberChange::LOST:
      ++lost_;
      break;
    case events::MemberChange::LEFT:
      ++left_;
      break;
    case events::MemberChange::JOINED:
      ++joined_;
      break;
    default:
      ++fenced_;
  }
  const bool good =
      change.kind() == events::MemberChange::JOINED || change.kind() == events::MemberChange::LEFT;
  good ? LogInfo("{}", text) : LogWarning("{}", text);
  reporter_.Metrics(change);
  if (first_.size() < kMostKept) first_.push_back(change);
  reporter_.MemberChanged(std::move(change));
}

void MemberChanges::Put(events::Summary& summary) const {
  for (const events::MemberChange& change : first_) *summary.add_changes() = change;
  summary.set_workers_lost(lost_);
  summary.set_workers_joined(joined_);
  summary.set_workers_fenced(fenced_);
  summary.set_workers_left(left_);
}

}  // namespace muster
