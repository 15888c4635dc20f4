#include "ps/member_changes.h"

#include <fmt/core.h>

#include "common/base/log.h"
#include "common/events/count_change.h"

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
  CountChange(change, so_far_);
  const bool good =
      change.kind() == events::MemberChange::JOINED || change.kind() == events::MemberChange::LEFT;
  good ? LogInfo("{}", text) : LogWarning("{}", text);
  reporter_.Metrics(change);
  reporter_.MemberChanged(std::move(change));
}

}  // namespace muster
