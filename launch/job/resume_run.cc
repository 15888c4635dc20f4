#include "launch/job/resume_run.h"

#include <fmt/core.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <tuple>

#include "common/base/atomic_file.h"
#include "common/base/error.h"
#include "common/checkpoint/early_stop.h"
#include "common/checkpoint/list_checkpoints.h"
#include "common/checkpoint/resumable_config.h"
#include "common/config/config.h"
#include "launch/text/units.h"

namespace muster {
namespace {

// What the checkpoint of a full disk's run says may be elsewhere: then the config that is here is
// the best there is.
bool HasCheckpoints(const RunDir& dir) { return !ListCheckpoints(dir.path()).empty(); }

// Whether what says when the run ends is not what it was: somebody wants it to go on.
bool WasAskedToGoOn(const std::string& kept, const config::Config& now) {
  const config::Config then = ParseKeptConfig(kept);
  const auto of = [](const config::Config& config) {
    return std::tuple(config.run().epochs(), config.run().steps(), config.evaluation().patience(),
                      config.evaluation().stop_at_accuracy());
  };
  return of(then) != of(now);
}

// `--repeat` makes a directory for each run in the one that it is given.
void RefuseSeries(const std::string& path) {
  std::error_code error;
  bool series = std::filesystem::exists(path + "/repeat.json", error);
  for (const auto& entry : std::filesystem::directory_iterator(path, error)) {
    const std::string name = entry.path().filename();
    series |= name.starts_with("seed-") && std::filesystem::is_directory(entry.path(), error);
  }
  if (!series) return;
  throw Error(ExitCode::kUsage,
              "--resume {}: this is a series of --repeat, whose runs are resumed one by one: "
              "--resume {}/seed-S; `muster runs {}` shows which of them are not completed",
              path, path, path);
}

}  // namespace

RunDir TakeUp(LaunchArguments& arguments) {
  RefuseSeries(arguments.resume);
  RunDir dir = RunDir::Resume(arguments.resume);
  arguments.config_path = dir.ConfigPath();
  std::error_code ignored;
  const bool config = std::filesystem::exists(dir.ConfigPath(), ignored);
  if (!HasCheckpoints(dir) && config) return dir;
  // What it was started with may say less: with batch_per_worker the batch follows the workers.
  const std::string text =
      "# Written by muster launch --resume: the config of the run as its checkpoint holds it.\n" +
      NewestState(dir.path()).config();
  std::ostringstream before;
  before << std::ifstream(dir.ConfigPath()).rdbuf();
  if (before.str() != text) WriteFileAtomically(dir.ConfigPath(), text);
  return dir;
}

std::string CheckTakenUp(const RunDir& dir, const config::Config& config) {
  if (!HasCheckpoints(dir)) {
    if (config.checkpoint().save_to().empty()) NoCheckpoint(dir.shown(), {});
    return "checkpoints in " + config.checkpoint().save_to();
  }
  const checkpoint::State state = NewestState(dir.path());
  (void)CheckResumable(state.config(), config);
  // Its length may be another one.
  const int64_t total = PlanSteps(config, state.plan().train_samples()).total_steps;
  if (total < state.step()) {
    throw Error(ExitCode::kUsage,
                "{}: it has done {}, and is now to end after {}; a run can be made longer, with "
                "--steps or --epochs, but not shorter than it is",
                dir.shown(), Plural(state.step(), "step"), FormatCount(total));
  }
  std::string done =
      fmt::format("{} of {} done", FormatCount(state.step()), Plural(total, "step"));
  const std::string over = StopReasonAt(config.evaluation(), state, total);
  if (over.empty()) return done;
  const std::string how = HowToGoOn(config.evaluation(), state.decisions());
  if (WasAskedToGoOn(state.config(), config)) {
    throw Error(ExitCode::kUsage,
                "{}: {}, and stays stopped early: {}. More steps or epochs do not change that; it "
                "goes on with {}",
                dir.shown(), done, over, how);
  }
  return fmt::format("{}, stopped early: {}; it would go on with {}", done, over, how);
}

}  // namespace muster
