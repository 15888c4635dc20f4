#include "cli/verify/verify_command.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <tuple>

#include "cli/job/job_display.h"
#include "cli/job/run_job.h"
#include "cli/job/watch_job.h"
#include "cli/job/workers_by_hand.h"
#include "cli/process/held_file.h"
#include "cli/process/log_tail.h"
#include "cli/text/console.h"
#include "cli/text/units.h"
#include "cli/view/run_reader.h"
#include "common/base/error.h"
#include "common/base/json.h"
#include "common/base/signals.h"
#include "common/checkpoint/list_checkpoints.h"
#include "common/checkpoint/resumable_config.h"
#include "common/checkpoint/run_mark.h"
#include "common/config/job_size.h"
#include "common/config/resolved.h"

namespace muster {
namespace {

constexpr size_t kReplayLogLines = 5;

// The checkpoints to compare with, in the order in which a run reaches them. If two servers of the
// run saved the same step, both are compared.
std::vector<CheckpointName> Choose(const std::string& run, bool last) {
  std::vector<CheckpointName> names = ListCheckpoints(run);
  if (names.empty() && !IsRunDir(run)) {
    throw Error(ExitCode::kUsage, "{}: expected a run directory", run);
  }
  std::ranges::sort(names, {}, [](const CheckpointName& name) {
    return std::tuple(name.step, name.evaluated, name.generation);
  });
  const auto is_last = [&](const CheckpointName& name) { return name.step == names.back().step; };
  const auto end = std::ranges::find_if(names, is_last);
  if (end == names.begin()) {
    throw Error(ExitCode::kUsage,
                "{}: expected checkpoints of at least two steps, got {}; set checkpoint.keep_last "
                "or checkpoint.keep_best to keep more",
                run, names.empty() ? "none" : names.back().Text());
  }
  const int64_t before = std::prev(end)->step;
  if (last) std::erase_if(names, [&](const CheckpointName& name) { return name.step < before; });
  return names;
}

// The run's config, without its output files.
config::Config ConfigOfReplay(const checkpoint::State& newest) {
  config::Config config = ParseKeptConfig(newest.config());
  config.mutable_run()->clear_trace_file();
  config.mutable_checkpoint()->Clear();
  config.mutable_checkpoint()->set_keep_last(0);
  config.mutable_tensorboard()->set_enabled(false);
  return config;
}

// A replay keeps the run's slices, so it cannot have more workers than slices.
void CheckWorkers(const std::vector<Setting>& settings, uint32_t slices) {
  for (const Setting& setting : settings) {
    const bool too_many = setting.path == "cluster.workers" &&
                          std::strtoul(setting.value.c_str(), nullptr, 0) > slices;
    if (!too_many) continue;
    throw Error(ExitCode::kUsage,
                "{}: expected at most {}, because the run has {} and each worker needs one",
                setting.origin, slices, Plural(int64_t{slices}, "slice"));
  }
}

void CheckLength(const config::Config& config, const checkpoint::State& newest) {
  const int64_t total = PlanSteps(config, newest.plan().train_samples()).total_steps;
  if (total >= newest.step()) return;
  throw Error(
      ExitCode::kUsage,
      "expected a length of at least {}, which the run has completed, got {}: do not change "
      "run.steps or run.epochs",
      Plural(newest.step(), "step"), FormatCount(total));
}

class Verify {
 public:
  Verify(const VerifyArguments& arguments, std::vector<CheckpointName> names)
      : arguments_(arguments), names_(std::move(names)) {}

  // Throws Error(kData) if a checkpoint is damaged, before any process is started.
  void CheckWhole() const {
    for (const CheckpointName& name : names_) {
      CheckpointReader(CheckpointFolder(arguments_.run, name)).Verify();
    }
  }

  int Run(const PreparedJob& job, SignalSource& signals) const {
    const TemporaryFolder folder;
    const JobOutcome outcome = RunIn(folder.path(), job, signals);
    const events::Replayed result =
        outcome.summary ? outcome.summary->replayed() : events::Replayed();
    const bool done = outcome.exit_code == ExitCode::kOk && result.same() + 1 == std::ssize(names_);
    if (!done && result.difference().empty()) Fail(outcome);
    Print(result, job.config);
    return static_cast<int>(result.difference().empty() ? ExitCode::kOk : ExitCode::kFailure);
  }

  // Explains a failed read if a checkpoint has been removed, as a running run does with older ones.
  std::string Removed() const {
    for (const CheckpointName& name : names_) {
      std::error_code ignored;
      if (std::filesystem::exists(CheckpointFolder(arguments_.run, name), ignored)) continue;
      return fmt::format(
          "{}: {} has been removed meanwhile, because the run is in progress and keeps only its "
          "newest checkpoints (checkpoint.keep_last): verify it after it has ended",
          arguments_.run, name.Text());
    }
    return "";
  }

 private:
  JobOutcome RunIn(const std::string& folder, const PreparedJob& job, SignalSource& signals) const {
    const RunDir dir = RunDir::Open(folder);
    config::Config config = job.config;
    config.mutable_run()->clear_dir();
    config.mutable_run()->clear_trace_file();  // may come from --set
    WriteRunConfig({}, config, dir.ConfigPath());
    JobPlan plan{.server_program = arguments_.server_program,
                 .worker_program = arguments_.worker_program,
                 .dir = &dir,
                 .config = &config,
                 .config_path = dir.ConfigPath(),
                 .places = job.cards ? job.cards->Places() : std::vector<WorkerPlace>(),
                 .endpoint = EndpointFor(config),
                 .token = NewToken()};
    if (!plan.places.empty()) {
      plan.place_again = [&](uint32_t rank) { return job.cards->PlaceAgain(rank); };
    }
    for (const CheckpointName& name : names_) {
      plan.replay.push_back(CheckpointFolder(arguments_.run, name));
    }
    Console console(STDERR_FILENO);  // because standard output is for the result
    JobDisplay display(console, plan);
    return WatchJob(plan, signals, console, display);
  }

  // Never uses code 0, which means that the bits are the same.
  [[noreturn]] static void Fail(const JobOutcome& outcome) {
    const bool failed = outcome.exit_code != ExitCode::kOk;
    const ExitCode code = failed ? outcome.exit_code : ExitCode::kFailure;
    if (outcome.stop_signal != 0) {
      throw Error(code, "stopped by {}; found no difference so far",
                  SignalName(outcome.stop_signal));
    }
    std::string text = outcome.failure ? outcome.failure->what : "the job ended without a result";
    if (!outcome.server_said.empty()) text += "\nthe server reports: " + outcome.server_said;
    if (!outcome.log_path.empty()) {
      for (const std::string& line : LastLines(outcome.log_path, kReplayLogLines)) {
        text += "\n  | " + line;
      }
    }
    throw Error(code, text);
  }

  void Print(const events::Replayed& result, const config::Config& config) const {
    const uint32_t workers = config.cluster().workers();
    const auto same = static_cast<size_t>(result.same());  // equal checkpoints after the first
    const int64_t from = names_.front().step, to = names_.at(same).step;
    if (arguments_.json) {
      nlohmann::ordered_json json{
          {"run", arguments_.run}, {"same", result.difference().empty()}, {"from_step", from},
          {"to_step", to},         {"tensors", result.tensors()},         {"workers", workers}};
      for (size_t i = 0; i <= same; ++i) json["checkpoints"].push_back(names_[i].Text());
      if (!result.difference().empty()) json["difference"] = result.difference();
      PrintResultAsIs(JsonText(json) + "\n");
    } else if (!result.difference().empty()) {
      const bool photos = config.data().format() == config::Data::IMAGE_FOLDER;
      PrintResult(
          result.difference() +
          (photos ? "; photos that were changed but kept their names would explain it" : ""));
    } else {
      PrintResult(fmt::format("steps {} to {}: the same bits in {} on {} ({})", FormatCount(from),
                              FormatCount(to), Plural(result.tensors(), "tensor"),
                              Plural(workers, "worker"), Plural(std::ssize(names_), "checkpoint")));
      if (from == 0 || arguments_.last) return;
      PrintResult(
          fmt::format("steps 0 to {} were not repeated: the run has no older checkpoint; set "
                      "checkpoint.keep_last to keep more",
                      FormatCount(from)));
    }
  }

  const VerifyArguments& arguments_;
  const std::vector<CheckpointName> names_;
};

}  // namespace

namespace {

// Returns nothing if a checkpoint was removed meanwhile. Trying again may find others.
std::optional<int> TryVerify(const VerifyArguments& arguments, bool may_try_again) {
  const std::string& run = arguments.run;
  const Verify verify(arguments, Choose(run, arguments.last));
  RequireOwnCheckpoints(run);
  std::optional<HeldFile> config;
  try {
    verify.CheckWhole();
    const checkpoint::State newest = NewestState(run);
    const config::Config replayed = ConfigOfReplay(newest);
    CheckWorkers(arguments.settings, replayed.run().slices());
    config = HeldFile::OfText(RunConfigText({}, replayed));
    return RunLaunch({.config_path = config->path(),
                      .settings = arguments.settings,
                      .server_program = arguments.server_program,
                      .worker_program = arguments.worker_program,
                      .wait_s = arguments.wait_s,
                      .count_data = arguments.count_data,
                      .in_place_of_run = [&](const PreparedJob& job, SignalSource& signals) {
                        (void)CheckResumable(newest.config(), job.config);
                        CheckLength(job.config, newest);
                        return verify.Run(job, signals);
                      }});
  } catch (const Error& error) {
    const std::string removed = error.code() == ExitCode::kData ? verify.Removed() : "";
    if (!removed.empty()) {
      if (may_try_again) return std::nullopt;
      throw Error(ExitCode::kData, removed);
    }
    throw config ? Renamed(error, config->path(), run + " (config)") : error;
  }
}

}  // namespace

int RunVerify(const VerifyArguments& arguments) {
  constexpr int kMostTries = 3;
  for (int i = 1;; ++i) {
    if (const auto exit_code = TryVerify(arguments, i < kMostTries)) return *exit_code;
  }
}

}  // namespace muster
