#include "ps/record/event_texts.h"

#include <fmt/core.h>

#include "common/base/log.h"
#include "common/base/text.h"

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
      return "left";
    case events::MemberChange::JOINED:
      return "became active";
    case events::MemberChange::FENCED:
      return "was reset";
    default:
      return "changed";
  }
}

void LogEvaluation(const events::Evaluation& line) {
  const char* const set = line.has_validation() ? "validation" : "test";
  const events::Scores& scores = line.has_validation() ? line.validation() : line.test();
  std::string scalars;
  for (const events::Scalar& scalar : scores.scalars())
    scalars += fmt::format(", {} {:.4g}", scalar.name(), scalar.value());
  LogInfo("step {}: {}{} loss {:.4f}{}", line.at().step(),
          scores.has_accuracy() ? fmt::format("{} accuracy {:.4f}, ", set, scores.accuracy()) : "",
          set, scores.loss(), scalars);
  if (!line.decision().empty()) LogInfo("{}", line.decision());
}

void LogChange(const events::MemberChange& change) {
  const bool good =
      change.kind() == events::MemberChange::JOINED || change.kind() == events::MemberChange::LEFT;
  good ? LogInfo("{}", TextOf(change)) : LogWarning("{}", TextOf(change));
}

}  // namespace

events::Event WarningEvent(const std::string& message) {
  events::Event event;
  event.mutable_warning()->set_message(message);
  return event;
}

events::Event FailureEvent(const JobFailure& failure) {
  events::Event event;
  event.mutable_failure()->set_exit_code(static_cast<int32_t>(failure.code));
  if (failure.rank) event.mutable_failure()->set_rank(*failure.rank);
  event.mutable_failure()->set_what(failure.what);
  return event;
}

events::Event WaitingEvent(const std::vector<uint32_t>& missing, double elapsed_s) {
  events::Event event;
  event.mutable_waiting()->mutable_missing()->Add(missing.begin(), missing.end());
  event.mutable_waiting()->set_elapsed_s(elapsed_s);
  return event;
}

events::Event SavingEvent(int64_t step, bool waits_for_programs) {
  events::Event event;
  event.mutable_saving()->set_step(step);
  event.mutable_saving()->set_waits_for_programs(waits_for_programs);
  return event;
}

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

std::string JoinTroubles(const std::string& first, const std::string& second) {
  return first.empty() || second.empty() ? first + second : first + "; " + second;
}

void LogEvent(const events::Event& event) {
  switch (event.kind_case()) {
    case events::Event::kJoined:
      return LogInfo("{}", event.joined().message());
    case events::Event::kWaiting:
      return LogInfo("waiting for rank {} ({:.0f} s)", Join(event.waiting().missing(), ", "),
                     event.waiting().elapsed_s());
    case events::Event::kEvaluation:
      return LogEvaluation(event.evaluation());
    case events::Event::kSharesChanged:
      return LogInfo("shares {}", event.shares_changed().text());
    case events::Event::kMemberChange:
      return LogChange(event.member_change());
    case events::Event::kWarning:
      return LogWarning("{}", event.warning().message());
    case events::Event::kFailure:
      return LogError("{}", event.failure().what());
    default:
      return;
  }
}

}  // namespace muster
