#include "cli/job/job_display.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>

#include "cli/job/placement.h"
#include "cli/job/progress_line.h"
#include "cli/text/units.h"

namespace muster {
namespace {

constexpr size_t kMostRanksInALine = 12;

}  // namespace

std::string RankList(std::span<const uint32_t> ranks) {
  if (ranks.empty()) return "unknown ranks";
  std::string list;
  size_t shown = std::min(ranks.size(), kMostRanksInALine);
  for (size_t i = 0; i < shown; ++i) {
    bool last = i + 1 == ranks.size();
    if (i > 0) list += last ? " and " : ", ";
    list += std::to_string(ranks[i]);
  }
  if (shown < ranks.size()) list += fmt::format(" and {} more", ranks.size() - shown);
  return (ranks.size() == 1 ? "rank " : "ranks ") + list;
}

void JobDisplay::ShowStage(const std::string& stage) {
  console_.SetLive(FitTo(stage, console_.Width()));
}

std::optional<int64_t> JobDisplay::step() const {
  return progress_.at().has_step() ? std::optional(progress_.at().step()) : std::nullopt;
}

std::string JobDisplay::AtStep() const {
  if (!progress_.at().has_step()) return "";
  std::string at = " at step " + FormatCount(progress_.at().step());
  if (progress_.total_steps() > 0) at += " of " + FormatCount(progress_.total_steps());
  return at;
}

void JobDisplay::OnEvent(const events::Event& event) {
  if (only_progress_ && event.kind_case() != events::Event::kProgress &&
      event.kind_case() != events::Event::kWarning) {
    return;
  }
  switch (event.kind_case()) {
    case events::Event::kJoined:
      if (by_hand_) console_.Print(event.joined().message());
      return;
    case events::Event::kRefused:
      if (by_hand_) console_.Print(event.refused().message());
      return;
    case events::Event::kWaiting:
      return OnWaiting(event.waiting());
    case events::Event::kStarted:
      return OnStarted(event.started());
    case events::Event::kProgress:
      return OnProgress(event.progress());
    case events::Event::kLog:
      return OnLog(event.log());
    case events::Event::kEvaluation:
      return OnEvaluation(event.evaluation());
    case events::Event::kSaving:
      return ShowStage("Writing state and weights");
    case events::Event::kMemberChange:
      return console_.Print(ChangeLine(event.member_change()));
    case events::Event::kSharesChanged:
      return console_.Print("Shares " + event.shares_changed().text());
    case events::Event::kWarning:
      return console_.Print("Warning: " + event.warning().message());
    case events::Event::kRestarted:
      ++restarts_told_;
      return console_.Print(fmt::format("Going on from step {}, {} after the loss",
                                        FormatCount(event.restarted().from_step()),
                                        FormatDuration(event.restarted().seconds())));
    case events::Event::kSkippedStep:
      return console_.Print(
          fmt::format("Skipped step {}: {} ({} in a row)", FormatCount(event.skipped_step().step()),
                      event.skipped_step().reason(), event.skipped_step().in_a_row()));
    default:
      return;  // the supervisor's
  }
}

void JobDisplay::OnProgress(const events::Progress& progress) {
  progress_.clear_evaluating();
  progress_.MergeFrom(progress);
  console_.SetLive(ProgressLine(progress_, console_.Width()));
}

void JobDisplay::OnLog(const events::Log& log) {
  progress_.clear_evaluating();
  progress_.mutable_at()->MergeFrom(log.at());
  progress_.mutable_measured()->MergeFrom(log.measured());
  if (log.has_eta_s()) progress_.set_eta_s(log.eta_s());
  if (!console_.is_terminal()) console_.Print(IntervalLine(progress_));
}

void JobDisplay::OnEvaluation(const events::Evaluation& evaluation) {
  console_.Print(EvaluationLine(evaluation));
  if (evaluation.decision().empty()) return;
  std::string text = evaluation.decision();
  text.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(text.front())));
  console_.Print(text);
}

void JobDisplay::OnWaiting(const events::Waiting& waiting) {
  console_.Print(
      fmt::format("Waiting for {}: {} of at most {} (deadlines.start_s)",
                  RankList({waiting.missing().data(), static_cast<size_t>(waiting.missing_size())}),
                  FormatDuration(waiting.elapsed_s()), FormatDuration(start_deadline_s_)));
}

void JobDisplay::OnStarted(const events::Started& started) {
  if (started.has_total_steps()) progress_.set_total_steps(started.total_steps());
  if (started.has_epochs()) progress_.set_epochs(started.epochs());
  std::string text;
  auto add = [&](bool known, int64_t count, const char* noun, const char* more = "") {
    if (known) text += (text.empty() ? "" : ", ") + Plural(count, noun) + more;
  };
  add(started.has_train_samples(), started.train_samples(), "training image");
  add(started.has_test_samples(), started.test_samples(), "test image");
  add(started.has_steps_per_epoch(), started.steps_per_epoch(), "step", " per epoch");
  add(started.has_total_steps(), started.total_steps(), "step", " in total");
  console_.Print("Started: " + (text.empty() ? "all workers are here" : text));
  if (notes_) {
    for (const std::string& line : notes_(started)) console_.Print(line);
  }
  if (log_placement_) {
    for (const std::string& line : PlacementLines(started, CoresOf, places_)) console_.Print(line);
  }
  ShowStage("Waiting for the first step");
}

}  // namespace muster
