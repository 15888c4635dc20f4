#include "launch/job/resume_run.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <tuple>

#include "common/base/atomic_file.h"
#include "common/base/error.h"
#include "common/checkpoint/early_stop.h"
#include "common/checkpoint/list_checkpoints.h"
#include "common/checkpoint/resumable_config.h"
#include "common/checkpoint/run_mark.h"
#include "common/config/config.h"
#include "launch/text/console.h"
#include "launch/text/units.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

// What the checkpoint of a full disk's run says may be elsewhere: then the config that is here is
// the best there is.
bool HasCheckpoints(const RunDir& dir) { return !ListCheckpoints(dir.path()).empty(); }

// Of an attempt that was killed before its first checkpoint was on the disk: nothing is lost but
// what its metrics and logs say. Never another run's checkpoints, locks and token.
void PutAside(const RunDir& dir) {
  if (!dir.IsUsed()) return;
  fs::path aside;
  for (int attempt = 1; aside.empty() || fs::exists(aside); ++attempt) {
    aside = fs::path(dir.path()) / fmt::format("attempt-{}", attempt);
  }
  const fs::path keep[] = {dir.LockPath(), dir.ServerLockPath(), dir.TokenPath()};
  try {
    fs::create_directory(aside);
    const std::vector<fs::directory_entry> entries(fs::directory_iterator(dir.path()),
                                                   fs::directory_iterator());
    for (const fs::directory_entry& entry : entries) {
      const std::string name = entry.path().filename();
      const bool stays = std::ranges::find(keep, entry.path()) != std::end(keep);
      if (!stays && !name.starts_with("attempt-")) fs::rename(entry.path(), aside / name);
    }
  } catch (const fs::filesystem_error& error) {
    throw Error(ExitCode::kUsage, "{}: a run that left no checkpoint cannot be put aside: {}",
                dir.shown(), error.code().message());
  }
  PrintResult(
      fmt::format("The run in {} left no checkpoint: its files are in {}, and it begins anew",
                  dir.shown(), aside.filename().string()));
}

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

void ResumeOrBegin(LaunchArguments& arguments) {
  const config::Config config = LoadConfig(arguments.config_path, arguments.settings);
  const std::string& path = config.run().dir();
  if (path.empty()) {
    throw Error(
        ExitCode::kUsage,
        "--resume auto: expected --run-dir DIR, the directory of the run to go on with or to "
        "begin");
  }
  if (config.checkpoint().keep_last() == 0) {
    throw Error(
        ExitCode::kUsage,
        "--resume auto: checkpoint.keep_last is 0, so there is never anything to go on from");
  }
  const std::string& elsewhere = config.checkpoint().save_to();
  if (!ListCheckpoints(path).empty() ||
      (!elsewhere.empty() && !ListCheckpoints(elsewhere).empty())) {
    arguments.resume = path;
    std::erase_if(arguments.settings, [](const Setting& one) { return one.path == "run.dir"; });
    return;
  }
  std::error_code ignored;
  if (fs::exists(path, ignored)) PutAside(RunDir::Resume(path));
}

RunDir TakeUp(const LaunchArguments& arguments) {
  RefuseSeries(arguments.resume);
  RunDir dir = RunDir::Resume(arguments.resume);
  RequireOwnCheckpoints(dir.path());
  return dir;
}

void KeepConfig(const RunDir& dir, LaunchArguments& arguments) {
  arguments.config_path = dir.ConfigPath();
  std::error_code ignored;
  const bool config = std::filesystem::exists(dir.ConfigPath(), ignored);
  if (!HasCheckpoints(dir) && config) return;
  // What it was started with may say less: with batch_per_worker the batch follows the workers.
  const std::string text =
      "# Written by muster launch --resume: the config of the run as its checkpoint holds it.\n" +
      NewestState(dir.path()).config();
  std::ostringstream before;
  before << std::ifstream(dir.ConfigPath()).rdbuf();
  if (before.str() != text) WriteFileAtomically(dir.ConfigPath(), text);
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
  std::string done = fmt::format("{} of {} done", FormatCount(state.step()), Plural(total, "step"));
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
