#include "cli/job/run_job.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <memory>
#include <optional>

#include "cli/job/bottleneck.h"
#include "cli/job/header.h"
#include "cli/job/job_display.h"
#include "cli/job/local_relay.h"
#include "cli/job/memory_check.h"
#include "cli/job/restarts.h"
#include "cli/job/summary.h"
#include "cli/job/workers_by_hand.h"
#include "cli/job/workers_in_slurm.h"
#include "cli/job/workers_over_ssh.h"
#include "cli/process/held_file.h"
#include "cli/process/log_tail.h"
#include "cli/text/console.h"
#include "cli/text/units.h"
#include "cli/trace/merge.h"
#include "common/base/error.h"
#include "common/base/fd.h"
#include "common/base/signals.h"
#include "common/base/text.h"
#include "common/config/data_format.h"
#include "common/config/resolved.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLogLinesShown = 10;
constexpr double kOutputSeconds = 60;  // the same limit as in every other command

// The config as a file that all processes of a job read: config.txtpb in the run directory. If a
// resumed run cannot write it (on a full disk), this is a file in memory that lives as long as the
// object.
class JobConfig {
 public:
  // Throws Error(kUsage) if the run is new and the file cannot be written.
  JobConfig(const config::Config& written, const config::Config& config, const RunDir& dir,
            bool resumed)
      : path_(dir.ConfigPath()) {
    try {
      WriteRunConfig(written, config, path_);
    } catch (const Error& error) {
      if (!resumed) {
        throw Error(ExitCode::kUsage,
                    "{}; if this place is not writable, choose another with "
                    "--run-dir",
                    error.what());
      }
      warning_ = fmt::format("{}; the run continues, but this file is unchanged", error.what());
      held_ = HeldFile::OfText(ConfigText(config));
      path_ = held_->path();
    }
  }

  const std::string& path() const { return path_; }
  const std::string& warning() const { return warning_; }  // "" if the file was written

 private:
  std::string path_, warning_;
  std::optional<HeldFile> held_;
};

// A run completes even if its results cannot be written or printed, but its exit code is not 0.
void Fail(JobOutcome& outcome, const std::string& what) {
  PrintError(fmt::format("muster: error: {}\n", what));
  if (outcome.exit_code == ExitCode::kOk) outcome.exit_code = ExitCode::kFailure;
}

std::string FailureText(const JobOutcome& outcome, const std::string& shown_dir, bool by_hand) {
  std::string text = "muster: error: " + outcome.failure->what + "\n";
  if (!outcome.not_restarted.empty()) {
    text += "  it was not restarted: " + outcome.not_restarted + "\n";
  }
  if (!outcome.server_said.empty()) text += "  the server reports: " + outcome.server_said + "\n";
  if (!outcome.log_path.empty()) {
    std::string shown = shown_dir + "/" + fs::path(outcome.log_path).filename().string();
    std::vector<std::string> tail = LastLines(outcome.log_path, kLogLinesShown);
    const char* const none = ::access(outcome.log_path.c_str(), F_OK) == 0 ? "empty" : "gone";
    text += tail.empty() ? fmt::format("  its log is {}: {}\n", none, shown)
                         : "  the last lines of " + shown + ":\n";
    for (const std::string& line : tail) text += "    | " + line + "\n";
  }
  return text +
         (by_hand ? "  the server has stopped and told the workers to stop; its files are in "
                  : "  every process of the job has been stopped; its files are in ") +
         shown_dir + "\n";
}

// A run whose files are gone has failed, even if it is complete. `was` is the old place of its
// directory if it was moved, or "".
void ReportMissing(const std::vector<std::string>& missing, const RunDir& dir,
                   const std::string& was, JobOutcome& outcome) {
  if (missing.empty()) return;
  const std::string what =
      was.empty() ? dir.shown() + " or some of its files were moved or removed during the run"
                  : fmt::format("{} was moved to {} during the run", was, dir.shown());
  Fail(outcome,
       fmt::format("{}: missing {}; only the output above is left", what, Join(missing, ", ")));
}

// `was`: see ReportMissing. `logs_here`: of the workers whose logs must be in the directory.
void ReportOutcome(JobOutcome& outcome, int workers, int logs_here, const KeptRun& run,
                   const std::string& was, const std::string& at_step, Console& console) {
  const RunDir& dir = run.dir;
  console.ClearLive();
  std::vector<std::string> missing;
  if (outcome.summary && outcome.summary->steps() > 0) {
    missing = dir.MissingFiles(logs_here, *outcome.summary);
    console.Print("");
    for (const std::string& line : SummaryLines(*outcome.summary, workers, run, outcome.ends)) {
      console.Print(line);
    }
  }
  if (outcome.stop_signal != 0) {
    // The displayed step may be a few steps old.
    std::string at = at_step;
    if (outcome.summary && outcome.summary->total_steps() > 0) {
      at = fmt::format(" at step {} of {}", FormatCount(outcome.summary->at().step()),
                       FormatCount(outcome.summary->total_steps()));
    }
    console.Print(fmt::format("Stopped by {}{}.", SignalName(outcome.stop_signal), at));
  }
  if (outcome.exit_code != ExitCode::kOk) console.Print(GoOnText(outcome.summary, run));
  console.Flush(1.0);
  if (outcome.failure) PrintError(FailureText(outcome, dir.shown(), run.by_hand));
  ReportMissing(missing, dir, was, outcome);
  if (!outcome.summary) return;
  if (!outcome.summary->trouble().empty()) Fail(outcome, TroubleText(*outcome.summary, run));
  if (!outcome.summary->lost().empty()) Fail(outcome, outcome.summary->lost());
}

// Prints the rest of the output, and gives a reader that pauses, such as a pager, some time.
void FinishOutput(Console& console, const std::string& shown_dir, JobOutcome& outcome) {
  try {
    console.Finish(kOutputSeconds);
    if (!console.closed()) return;
    PrintError(fmt::format(
        "muster: standard output was closed early; the run's results are in {}\n", shown_dir));
  } catch (const Error& error) {
    Fail(outcome, fmt::format("{}; the run's results are in {}", error.what(), shown_dir));
  }
}

// Merges the parts of all processes into one trace. A failure changes the exit code, but does not
// hide the outcome of the run.
void FinishTrace(const config::Config& config, const RunDir& dir, Console& console,
                 JobOutcome& outcome) {
  const std::string& path = config.run().trace_file();
  const auto parts = dir.TraceParts(static_cast<int>(config.cluster().workers()));
  try {
    const MergedTrace merged = MergeTrace(parts, path);
    for (const std::string& part : parts) ::unlink(part.c_str());
    console.Print(TraceLine(path, merged.spans, merged.dropped));
    console.Flush(1.0);
    for (const std::string& part : merged.missing) {
      PrintError(fmt::format("muster: warning: the trace lacks a process: there is no {}\n", part));
    }
    if (merged.spans > 0) return;
    const std::string why =
        merged.missing.size() == parts.size()
            ? "no process wrote its part"
            : fmt::format("the run ended before step {}; choose the steps with --trace-steps A-B",
                          config.run().trace_first_step());
    Fail(outcome, "the trace is empty: " + why);
  } catch (const Error& error) {
    Fail(outcome,
         fmt::format("{0}; its parts are in {1}: merge them with muster trace FILE --merge "
                     "{1}/trace.*.part",
                     error.what(), dir.shown()));
  }
}

std::string ElsewhereText(const LaunchArguments& arguments) {
  if (arguments.by_hand) return "started by hand";
  return arguments.hosts ? HostsText(*arguments.hosts) : StepText(arguments);
}

// Throws if the job cannot fit. Workers that may run on other hosts do not count.
std::string MemoryWarning(const config::Config& config, const Graph& graph, bool elsewhere) {
  LeastMemory needed = LeastMemoryOf(config, graph);
  if (elsewhere) needed.each_worker = 0;
  return CheckMemory(needed, ReadMachineMemory());
}

bool HasGpu(const WorkerPlace& place) { return !place.gpu.uuid.empty(); }

// Other hosts know the places of their own ranks.
std::vector<WorkerPlace> PlacesOf(const LaunchArguments& arguments, const PreparedJob& job) {
  if (!job.cards) return {};
  std::vector<WorkerPlace> here = job.cards->Places();
  if (!arguments.hosts || here.empty()) return here;
  std::vector<WorkerPlace> places;
  auto next = here.begin();
  for (const Host& host : arguments.hosts->hosts) {
    for (uint32_t i = 0; i < host.slots; ++i) {
      places.push_back(host.here ? std::move(*next++) : WorkerPlace());
    }
  }
  return places;
}

// The job's GPUs, and what they do beside computing.
std::vector<std::string> CardLines(const LaunchArguments& arguments, const PreparedJob& job) {
  if (arguments.hosts) {
    if (job.config.worker().backend() != config::Worker::CUDA) return {};
    return {"idle GPUs of each host, locked for this job"};
  }
  std::vector<std::string> lines = job.cards ? job.cards->Lines() : std::vector<std::string>();
  if (AddsInGpus(job.config) && !arguments.elsewhere()) {
    lines.emplace_back("they add the workers' gradients (worker.gpu_sums)");
  }
  return lines;
}

}  // namespace

std::optional<WorkersByHand> AddressesOf(const LaunchArguments& arguments, const PreparedJob& job) {
  if (arguments.in_step()) return AddressesInSlurm(job.config);
  if (job.address) return WorkersByHand{.endpoint = job.address->endpoint()};
  if (arguments.by_hand) return WithInterface(*arguments.by_hand, job.config);
  return std::nullopt;
}

std::string EndpointFor(const config::Config& config) {
  if (config.cluster().transport() == config::Cluster::TCP) return "tcp://127.0.0.1:*";
  // Names in the abstract namespace, so that no file is left behind. Each server chooses a new one.
  return config.cluster().transport() == config::Cluster::LOCAL ? "local://@*" : "ipc://@*";
}

JobOutcome RunJob(const LaunchArguments& arguments, const PreparedJob& job, RunDir& dir,
                  SignalSource& signals) {
  config::Config config = job.config;
  config.mutable_run()->set_dir(dir.path());
  const std::optional<WorkersByHand> addresses = AddressesOf(arguments, job);
  const int workers = static_cast<int>(config.cluster().workers());
  try {
    const bool traced = !config.run().trace_file().empty();
    if (traced) RequireTracePlace(config.run().trace_file());
    const bool resumed = !arguments.resume.empty();
    const JobConfig config_file(job.written, config, dir, resumed);
    if (traced) {
      CheckTracePath(config.run().trace_file());
      // An earlier job in this directory may have left parts.
      for (const std::string& part : dir.TraceParts(workers)) ::unlink(part.c_str());
    }

    Console console(STDOUT_FILENO);
    const bool by_hand = arguments.by_hand.has_value();
    for (const std::string& line : HeaderLines(
             arguments.held_config ? dir.ConfigPath() : arguments.config_path, config, job.graph,
             dir.shown(),
             {.cores = AvailableCores(),
             .elsewhere = ElsewhereText(arguments),
             .server = job.address
                           ? ServerText(*job.address, UsesRelays(job.config, *arguments.hosts))
                           : "",
             .memory = MemoryWarning(config, job.graph, arguments.elsewhere()),
             .data = job.data,
             .resumed = job.resume_remark,
             .cards = CardLines(arguments, job),
             .initial_weights = job.initial_weights})) {
      console.Print(line);
    }
    if (!config_file.warning().empty()) console.Print("Warning: " + config_file.warning());
    JobPlan plan{.server_program = arguments.server_program,
                 .worker_program = arguments.worker_program,
                 .dir = &dir,
                 .config = &config,
                 .config_path = config_file.path(),
                 .places = PlacesOf(arguments, job),
                 .endpoint = EndpointFor(config),
                 .token = NewToken(),
                 .resume = resumed};
    if (job.address) {
      plan.hosts = &*arguments.hosts;
      plan.endpoint = addresses->endpoint;
    }
    plan.in_slurm = arguments.slurm.has_value();
    plan.has_terminal = UniqueFd(::open("/dev/tty", O_RDONLY | O_NOCTTY | O_CLOEXEC)).valid();
    if (arguments.in_step()) PlanStep(arguments, plan);
    if (resumed && by_hand) {
      if (auto loss = LostBefore(dir.path())) plan.losses.push_back(std::move(*loss));
    }
    if (!plan.places.empty()) {
      plan.place_again = [&](uint32_t rank) {
        const auto before = std::span(plan.places).first(rank);
        return job.cards->PlaceAgain(static_cast<uint32_t>(std::ranges::count_if(before, HasGpu)));
      };
    }
    std::unique_ptr<MadeToken> made_token;
    if (by_hand) made_token = PlanWorkersByHand(*addresses, plan);
    JobDisplay display(console, plan, arguments.log_placement);
    JobOutcome outcome = WatchJobThroughLosses(plan, signals, console, display);
    std::string was = dir.shown();
    if (!dir.Follow()) was.clear();
    made_token.reset();  // before the output, whose reader may pause
    // Workers that are started by hand may run on other hosts.
    const std::string crowd = arguments.elsewhere()
                                  ? ""
                                  : CrowdText(workers, config.worker().threads(), AvailableCores());
    // Slurm may have started only some of the workers.
    ReportOutcome(
        outcome, workers, arguments.elsewhere() ? 0 : workers,
        {.dir = dir,
         .by_hand = by_hand,
         .on_gpus = display.on_gpus(),
         .could_use_bf16 = CouldUseBf16(config) && !display.on_gpus() && !arguments.elsewhere(),
         .crowd = crowd,
         .sample = SampleNoun(config),
         .classes = HasProgram(config) || HasValues(config.data()) ? 0 : DataClasses(config.data()),
         .verbose = arguments.verbose,
         .hosts = arguments.hosts ? arguments.hosts->options : ""},
        was, display.AtStep(), console);
    if (traced) FinishTrace(config, dir, console, outcome);
    FinishOutput(console, dir.shown(), outcome);
    return outcome;
  } catch (const Error&) {
    dir.Discard();  // no process has run
    throw;
  }
}

}  // namespace muster
