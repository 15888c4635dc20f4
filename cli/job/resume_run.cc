#include "cli/job/resume_run.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <tuple>

#include "cli/job/complete_run.h"
#include "cli/text/console.h"
#include "cli/text/units.h"
#include "common/base/atomic_file.h"
#include "common/base/error.h"
#include "common/base/file.h"
#include "common/base/text.h"
#include "common/checkpoint/early_stop.h"
#include "common/checkpoint/list_checkpoints.h"
#include "common/checkpoint/resumable_config.h"
#include "common/checkpoint/run_mark.h"
#include "common/config/config.h"
#include "common/config/job_size.h"
#include "common/config/resolved.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

bool Names(const std::vector<Setting>& settings, std::string_view path) {
  return std::ranges::any_of(settings, [&](const Setting& one) { return one.path == path; });
}

// Rejects a directory that is not a run before anything, even the lock file, is written there.
void RequireRun(const std::string& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return;  // RunDir::Resume reports it
  if (fs::exists(path + "/config.txtpb", ignored) || !ListCheckpoints(path).empty()) return;
  const fs::path parent = fs::absolute(path + "/.").lexically_normal().parent_path().parent_path();
  // `path` may be checkpoints/ or a folder in it.
  for (const fs::path& run : {parent, parent.parent_path()}) {
    if (!fs::exists(run / "config.txtpb", ignored)) continue;
    throw Error(ExitCode::kUsage,
                "--resume {}: this is only a part of a run; expected its directory: --resume {}",
                path, ShellWord(run));
  }
  if (fs::exists(path + "/repeat.json", ignored)) {
    throw Error(
        ExitCode::kUsage,
        "--resume {}: this is a series (--repeat); resume its runs one by one: `muster runs {}` "
        "lists them",
        path, ShellWord(path));
  }
  NoCheckpoint(path, {});
}

}  // namespace

bool EndsElsewhere(const config::Config& then, const config::Config& now) {
  const auto of = [](const config::Config& config) {
    return std::tuple(config.run().epochs(), config.run().steps(), config.evaluation().patience(),
                      config.evaluation().stop_at_accuracy());
  };
  return of(then) != of(now);
}

void ResumeOrBegin(LaunchArguments& arguments) {
  const config::Config config =
      arguments.has_config ? LoadConfig(arguments.config_path, arguments.settings)
                           : LoadToLaunch(arguments.config_path, arguments.settings, false).config;
  const std::string& path = config.run().dir();
  if (path.empty()) {
    throw Error(
        ExitCode::kUsage,
        "--resume auto: expected --run-dir DIR, the directory of the run to resume or start");
  }
  // A requeued job without checkpoints starts over; nobody has asked it to resume.
  const bool requeued = arguments.slurm && arguments.slurm->restarts > 0;
  if (config.checkpoint().keep_last() == 0 && !requeued) {
    throw Error(
        ExitCode::kUsage,
        "--resume auto: checkpoint.keep_last is 0, so there is never a checkpoint to resume from");
  }
  if (!ListCheckpoints(path).empty() || IsCompleteWithoutCheckpoint(path, arguments.settings)) {
    arguments.resume = path;
    std::erase_if(arguments.settings, [](const Setting& one) { return one.path == "run.dir"; });
    return;
  }
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return;
  const RunDir dir = RunDir::Resume(path);  // locks it, so no other launcher uses it
  if (!dir.IsUsed()) return;
  PrintResult(
      fmt::format("The run in {} left no checkpoint. Archived its files in {}; starting over",
                  dir.shown(), PutAside(dir, config.run().initial_weights())));
}

RunDir TakeUp(const LaunchArguments& arguments) {
  RequireRun(arguments.resume);
  RunDir dir = RunDir::Resume(arguments.resume);
  RequireOwnCheckpoints(dir.path());
  RequireOwnFolder(dir.path());
  return dir;
}

std::string ConfigToResume(const std::string& run_dir) {
  return ConfigText(ParseKeptConfig(NewestState(run_dir).config()));
}

void KeepConfig(const RunDir& dir, LaunchArguments& arguments) {
  arguments.config_path = dir.ConfigPath();
  arguments.has_config = true;
  if (ListCheckpoints(dir.path()).empty()) {
    std::error_code ignored;
    if (!fs::exists(dir.ConfigPath(), ignored)) NoCheckpoint(dir.shown(), {});
    return;
  }
  const std::string text =
      RunConfigText(WrittenIn(dir.ConfigPath()), ParseKeptConfig(NewestState(dir.path()).config()));
  if (ReadFileIfThere(dir.ConfigPath()) == text) return;
  try {
    WriteFileAtomically(dir.ConfigPath(), text);
  } catch (const Error&) {  // for example a full disk; writing the job's config reports it
    arguments.held_config = std::make_shared<HeldFile>(HeldFile::OfText(text));
    arguments.config_path = arguments.held_config->path();
  }
}

std::string CheckTakenUp(const RunDir& dir, const config::Config& config) {
  if (ListCheckpoints(dir.path()).empty()) {
    throw Error(ExitCode::kData,
                "{0} holds no checkpoint (expected some in {1}), so there is nothing to resume. "
                "Repeat the run to get the same bits: muster launch {0}/config.txtpb",
                dir.shown(), CheckpointsFolder(dir.shown()));
  }
  const checkpoint::State state = NewestState(dir.path());
  (void)CheckResumable(state.config(), config);
  // This launch may have changed the length.
  const int64_t total = PlanSteps(config, state.plan().train_samples()).total_steps;
  if (total < state.step()) {
    throw Error(ExitCode::kUsage,
                "{}: the run has done {}, so it cannot end after {}; --steps and --epochs can "
                "extend a run, but not shorten it below that",
                dir.shown(), Plural(state.step(), "step"), FormatCount(total));
  }
  std::string done = fmt::format("{} of {} done", FormatCount(state.step()), Plural(total, "step"));
  const std::string over = StopReasonAt(config.evaluation(), state, total);
  if (over.empty()) return done;
  const std::string how = HowToGoOn(config.evaluation(), state.decisions());
  if (EndsElsewhere(ParseKeptConfig(state.config()), config)) {
    throw Error(ExitCode::kUsage,
                "{}: {}, stopped early: {}. More steps or epochs do not change that; to continue, "
                "use {}",
                dir.shown(), done, over, how);
  }
  return fmt::format("{}, stopped early: {}; to continue, use {}", done, over, how);
}

void PlanTrace(const RunDir& dir, const std::vector<Setting>& settings, config::Config& config) {
  config::Run& run = *config.mutable_run();
  if (run.trace_file().empty()) return;
  const checkpoint::State state = NewestState(dir.path());
  const int64_t done = state.step();
  const int64_t total = PlanSteps(config, state.plan().train_samples()).total_steps;
  if (!Names(settings, "run.trace_file")) {
    if (run.trace_first_step() < done) run.clear_trace_file();
    return;
  }
  if (done >= total) {
    throw Error(ExitCode::kUsage, "--trace: {} has done all {}; there is no step left to trace",
                dir.shown(), Plural(total, "step"));
  }
  const int64_t left = total - done;
  if (!Names(settings, "run.trace_first_step")) {
    if (!Names(settings, "run.trace_steps")) {
      run.set_trace_steps(std::min<int64_t>(config::Run::default_instance().trace_steps(), left));
    }
    const int64_t usual = config::Run::default_instance().trace_first_step();
    run.set_trace_first_step(done + std::clamp<int64_t>(left - run.trace_steps(), 0, usual));
  }
  const int64_t first = run.trace_first_step(), last = first + run.trace_steps() - 1;
  if (first >= done && last < total) return;
  throw Error(ExitCode::kUsage,
              "run.trace_first_step: {} resumes from step {}: expected steps within {} to {}, got "
              "{} to {}; choose them with --trace-steps A-B",
              dir.shown(), FormatCount(done), done, total - 1, first, last);
}

}  // namespace muster
