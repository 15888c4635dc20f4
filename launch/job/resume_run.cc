#include "launch/job/resume_run.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>

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

// Steps that the run has done, and how many it will have.
struct Reach {
  int64_t done = 0, total = 0;
};

Reach ReachOf(const RunDir& dir, const config::Config& config) {
  const std::string& elsewhere = config.checkpoint().save_to();
  if (!HasCheckpoints(dir) && elsewhere.empty()) return {};
  const checkpoint::State state = NewestState(HasCheckpoints(dir) ? dir.path() : elsewhere);
  return {state.step(), PlanSteps(config, state.plan().train_samples()).total_steps};
}

bool Names(const std::vector<Setting>& settings, std::string_view path) {
  return std::ranges::any_of(settings, [&](const Setting& one) { return one.path == path; });
}

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

void PlanTrace(const RunDir& dir, const std::vector<Setting>& settings, config::Config& config) {
  config::Run& run = *config.mutable_run();
  if (run.trace_file().empty()) return;
  const Reach reach = ReachOf(dir, config);
  if (!Names(settings, "run.trace_file")) {
    if (run.trace_first_step() < reach.done) run.clear_trace_file();
    return;
  }
  if (reach.done >= reach.total) {
    throw Error(ExitCode::kUsage, "--trace: {} has done its {}: there is no step left to trace",
                dir.shown(), Plural(reach.total, "step"));
  }
  const int64_t left = reach.total - reach.done;
  if (!Names(settings, "run.trace_first_step")) {
    if (!Names(settings, "run.trace_steps")) {
      run.set_trace_steps(std::min<int64_t>(config::Run::default_instance().trace_steps(), left));
    }
    const int64_t usual = config::Run::default_instance().trace_first_step();
    run.set_trace_first_step(reach.done + std::clamp<int64_t>(left - run.trace_steps(), 0, usual));
  }
  const int64_t first = run.trace_first_step(), last = first + run.trace_steps() - 1;
  if (first >= reach.done && last < reach.total) return;
  throw Error(ExitCode::kUsage,
              "run.trace_first_step: {} goes on from step {}: expected steps {} to {}, got {} to "
              "{}: choose them with --trace-steps A-B",
              dir.shown(), FormatCount(reach.done), reach.done, reach.total - 1, first, last);
}

}  // namespace muster
