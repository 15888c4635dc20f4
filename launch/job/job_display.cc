#include "launch/job/job_display.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "launch/job/placement.h"
#include "launch/job/progress_line.h"
#include "launch/text/units.h"

namespace muster {
namespace {

constexpr size_t kMostRanks = 12;

}  // namespace

std::string RankList(const nlohmann::json& ranks) {
  if (!ranks.is_array() || ranks.empty()) return "unknown ranks";
  std::string list;
  size_t shown = std::min(ranks.size(), kMostRanks);
  for (size_t i = 0; i < shown; ++i) {
    bool last = i + 1 == ranks.size();
    if (i > 0) list += last ? " and " : ", ";
    list += ranks[i].is_number_integer() ? std::to_string(ranks[i].get<int64_t>()) : "?";
  }
  if (shown < ranks.size()) list += fmt::format(" and {} more", ranks.size() - shown);
  return (ranks.size() == 1 ? "rank " : "ranks ") + list;
}

void JobDisplay::ShowStage(const std::string& stage) {
  console_.SetLive(FitTo(stage, console_.Width()));
}

std::string JobDisplay::AtStep() const {
  if (progress_.step < 0) return "";
  std::string at = " at step " + FormatCount(progress_.step);
  if (progress_.total_steps > 0) at += " of " + FormatCount(progress_.total_steps);
  return at;
}

void JobDisplay::OnEvent(const nlohmann::json& event) {
  std::string kind = Text(event, "event");
  if (kind == "joined" || kind == "refused") {
    if (by_hand_) console_.Print(Text(event, "message"));
  } else if (kind == "waiting") {
    OnWaiting(event);
  } else if (kind == "started") {
    OnStarted(event);
  } else if (kind == "progress") {
    Update(progress_, event);
    console_.SetLive(ProgressLine(progress_, console_.Width()));
  } else if (kind == "log") {
    Update(progress_, event);
    if (!console_.is_terminal()) console_.Print(LogLine(progress_));
  } else if (kind == "evaluation") {
    Progress evaluation;
    Update(evaluation, event);
    console_.Print(EvaluationLine(evaluation));
  } else if (kind == "warning") {
    console_.Print("Warning: " + Text(event, "message"));
  } else if (kind == "skipped_step") {
    console_.Print(fmt::format("Skipped step {}: {} ({} in a row)",
                               FormatCount(Whole(event, "step")), Text(event, "reason"),
                               Whole(event, "in_a_row")));
  }
}

void JobDisplay::OnWaiting(const nlohmann::json& event) {
  console_.Print(fmt::format("Waiting for {}: {} of at most {} (deadlines.start_s)",
                             RankList(event.value("missing", nlohmann::json())),
                             FormatDuration(Number(event, "elapsed_s")),
                             FormatDuration(start_deadline_s_)));
}

void JobDisplay::OnStarted(const nlohmann::json& event) {
  progress_.total_steps = Whole(event, "total_steps");
  std::string text;
  auto add = [&](const char* key, const char* noun, const char* more = "") {
    int64_t count = Whole(event, key);
    if (count < 0) return;
    text += (text.empty() ? "" : ", ") + Plural(count, noun) + more;
  };
  add("train_samples", "training image");
  add("test_samples", "test image");
  add("steps_per_epoch", "step", " per epoch");
  add("total_steps", "step", " in total");
  console_.Print("Started: " + (text.empty() ? "all workers are here" : text));
  if (notes_) {
    for (const std::string& line : notes_(Whole(event, "train_samples"))) console_.Print(line);
  }
  if (log_placement_) {
    for (const std::string& line : PlacementLines(event, CoresOf)) console_.Print(line);
  }
  ShowStage("Waiting for the first step");
}

}  // namespace muster
