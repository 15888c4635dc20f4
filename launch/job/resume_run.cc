#include "launch/job/resume_run.h"

#include <fmt/core.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "common/base/atomic_file.h"
#include "common/base/error.h"
#include "common/checkpoint/list_checkpoints.h"
#include "common/checkpoint/resumable_config.h"
#include "common/config/config.h"
#include "launch/text/units.h"

namespace muster {
namespace {

// What the checkpoint of a full disk's run says may be elsewhere: then the config that is here is
// the best there is.
bool HasCheckpoints(const RunDir& dir) { return !ListCheckpoints(dir.path()).empty(); }

}  // namespace

RunDir TakeUp(LaunchArguments& arguments) {
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
  return fmt::format("{} of {} done", FormatCount(state.step()), Plural(total, "step"));
}

}  // namespace muster
