#include "launch/job/kept_text.h"

#include <fmt/core.h>

#include <filesystem>

#include "common/base/shell_word.h"
#include "common/checkpoint/list_checkpoints.h"
#include "launch/text/units.h"

namespace muster {
namespace {

// The step of the newest checkpoint of the run; nothing if it has none.
std::optional<int64_t> KeptStep(const std::optional<events::Summary>& summary, const KeptRun& run) {
  // What is there now, whatever the server has written once.
  const std::vector<CheckpointName> names = ListCheckpoints(run.dir.path());
  if (names.empty()) return std::nullopt;
  return summary && summary->has_checkpoint() ? summary->checkpoint_step() : names.front().step;
}

// Somebody may have removed the directory, with all that the server has written there.
bool IsGone(const KeptRun& run) {
  std::error_code ignored;
  return !std::filesystem::exists(run.dir.ConfigPath(), ignored);
}

std::string ResumeCommand(const KeptRun& run) {
  return fmt::format("muster {} --resume {}", run.by_hand ? "server" : "launch",
                     ShellWord(run.dir.shown()));
}

std::string RepeatCommand(const KeptRun& run) {
  return fmt::format("muster {} {} --run-dir DIR", run.by_hand ? "server" : "launch",
                     ShellWord(run.dir.shown() + "/config.txtpb"));
}

bool HasWeights(const events::Summary& summary) {
  for (const auto& model : summary.models()) {
    if (!std::filesystem::path(model.file()).filename().string().starts_with("best")) return true;
  }
  return false;
}

// Of the text on a checkpoint: from where, if that is not where the run ended.
std::string HowToMend(const events::Summary& summary, const KeptRun& run) {
  const std::optional<int64_t> kept = KeptStep(summary, run);
  if (kept && *kept == summary.at().step() && summary.end() == events::Summary::COMPLETED) {
    return "when there is room again, this writes what is missing: " + ResumeCommand(run);
  }
  if (kept) {
    return fmt::format("when there is room again, {} goes on from step {}, with the same bits",
                       ResumeCommand(run), FormatCount(*kept));
  }
  if (IsGone(run)) {
    return fmt::format(
        "{} was removed while the run went on, so the run cannot go on: start it "
        "again from the config that you gave",
        run.dir.shown());
  }
  return fmt::format(
      "{}, so the run cannot go on; it can be done again, with the same bits, in a directory on a "
      "disk with room: {}",
      HasWeights(summary) ? "there is no checkpoint of it" : "its weights are on no disk",
      RepeatCommand(run));
}

}  // namespace

std::string GoOnText(const std::optional<events::Summary>& summary, const KeptRun& run) {
  const std::optional<int64_t> kept = KeptStep(summary, run);
  if (!kept) {
    return fmt::format("{} {}: the run cannot go on.", run.dir.shown(),
                       IsGone(run) ? "was removed while the run went on" : "holds no checkpoint");
  }
  return fmt::format("{} goes on from step {}.", ResumeCommand(run), FormatCount(*kept));
}

std::string TroubleText(const events::Summary& summary, const KeptRun& run) {
  return fmt::format("not everything of the run could be kept: {}; {}", summary.trouble(),
                     HowToMend(summary, run));
}

}  // namespace muster
