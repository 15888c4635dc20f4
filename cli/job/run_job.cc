#include "cli/job/run_job.h"

#include <fmt/core.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>

#include "cli/job/header.h"
#include "cli/job/job_config.h"
#include "cli/job/job_display.h"
#include "cli/job/job_token.h"
#include "cli/job/lost_before.h"
#include "cli/job/memory_check.h"
#include "cli/job/placement.h"
#include "cli/job/restarts.h"
#include "cli/job/summary.h"
#include "cli/job/trace_place.h"
#include "cli/process/log_tail.h"
#include "cli/text/console.h"
#include "cli/text/units.h"
#include "cli/trace/merge.h"
#include "common/base/count_text.h"
#include "common/base/error.h"
#include "common/base/join.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLogLinesShown = 10;
constexpr int64_t kOutputSeconds = 60;  // as every command waits for its reader

std::string FailureText(const JobOutcome& outcome, const std::string& shown_dir, bool by_hand) {
  std::string text = "muster: error: " + outcome.failure->what + "\n";
  if (!outcome.not_restarted.empty()) {
    text += "  it was not started again: " + outcome.not_restarted + "\n";
  }
  if (!outcome.server_said.empty()) text += "  the server says: " + outcome.server_said + "\n";
  if (!outcome.log_path.empty()) {
    std::string shown = shown_dir + "/" + fs::path(outcome.log_path).filename().string();
    std::vector<std::string> tail = LastLines(outcome.log_path, kLogLinesShown);
    const char* const none = ::access(outcome.log_path.c_str(), F_OK) == 0 ? "empty" : "gone";
    text += tail.empty() ? fmt::format("  its log is {}: {}\n", none, shown)
                         : "  the last lines of " + shown + ":\n";
    for (const std::string& line : tail) text += "    | " + line + "\n";
  }
  return text +
         (by_hand ? "  the server has stopped, and told the workers to; its files are in "
                  : "  every process of the job has been stopped; its files are in ") +
         shown_dir + "\n";
}

// What could not be written down. The run's result is what was printed.
void ReportTrouble(JobOutcome& outcome, const KeptRun& run) {
  if (!outcome.summary) return;
  const std::string &trouble = outcome.summary->trouble(), &lost = outcome.summary->lost();
  if (trouble.empty() && lost.empty()) return;
  if (!trouble.empty()) {
    PrintError(fmt::format("muster: error: {}\n", TroubleText(*outcome.summary, run)));
  }
  if (!lost.empty()) PrintError(fmt::format("muster: error: {}\n", lost));
  if (outcome.exit_code == ExitCode::kOk) outcome.exit_code = ExitCode::kFailure;
}

// A run whose files are gone is no success, whatever it reached. `was`: from where its directory
// was moved, or "".
void ReportMissing(const std::vector<std::string>& missing, const RunDir& dir,
                   const std::string& was, JobOutcome& outcome) {
  if (missing.empty()) return;
  const std::string what =
      was.empty()
          ? dir.shown() + " was moved or removed while the run went on, or some of its files were"
          : fmt::format("{} was moved to {} while the run went on", was, dir.shown());
  PrintError(fmt::format("muster: error: {}: it lacks {}; what is printed above is all there is\n",
                         what, Join(missing, ", ")));
  if (outcome.exit_code == ExitCode::kOk) outcome.exit_code = ExitCode::kFailure;
}

// `was`: see ReportMissing.
void ReportOutcome(JobOutcome& outcome, int workers, const KeptRun& run, const std::string& was,
                   const std::string& at_step, Console& console) {
  const RunDir& dir = run.dir;
  console.ClearLive();
  std::vector<std::string> missing;
  if (outcome.summary && outcome.summary->steps() > 0) {
    const int logs_here = run.by_hand ? 0 : workers;
    missing = dir.MissingFiles(logs_here, *outcome.summary);
    console.Print("");
    for (const std::string& line :
         SummaryLines(*outcome.summary, workers, run.on_gpus, dir, outcome.ends)) {
      console.Print(line);
    }
  }
  if (outcome.stop_signal != 0) {
    // What was shown last may be a few steps old.
    std::string at = at_step;
    if (outcome.summary && outcome.summary->total_steps() > 0) {
      at = fmt::format(" at step {} of {}", FormatCount(outcome.summary->at().step()),
                       FormatCount(outcome.summary->total_steps()));
    }
    console.Print(fmt::format("Stopped by SIG{}{}.", ::sigabbrev_np(outcome.stop_signal), at));
  }
  if (outcome.exit_code != ExitCode::kOk) console.Print(GoOnText(outcome.summary, run));
  console.Flush(1.0);
  if (outcome.failure) PrintError(FailureText(outcome, dir.shown(), run.by_hand));
  ReportMissing(missing, dir, was, outcome);
  ReportTrouble(outcome, run);
}

// Whether everything could be printed that anybody wanted to read. A reader that pauses, such as a
// pager, gets some time.
bool ReportOutput(Console& console, const std::string& shown_dir) {
  console.ClearLive();
  console.Flush(static_cast<double>(kOutputSeconds));
  if (!console.closed() && !console.cut()) return true;
  const std::string trouble = console.closed() ? console.trouble()
                                               : fmt::format("its reader took too little for {} s",
                                                             FormatCount(kOutputSeconds));
  PrintError(trouble.empty()
                 ? fmt::format("muster: standard output was closed early; the run's results are in "
                               "{}\n",
                               shown_dir)
                 : fmt::format("muster: error: standard output could not be written: {}; the run's "
                               "results are in {}\n",
                               trouble, shown_dir));
  return trouble.empty();
}

// Makes one trace of the processes' parts. What was asked for and is not there is a failure, but
// never hides the run's own outcome.
ExitCode FinishTrace(const config::Config& config, const RunDir& dir, Console& console) {
  const std::string& path = config.run().trace_file();
  const auto parts = dir.TraceParts(static_cast<int>(config.cluster().workers()));
  try {
    const MergedTrace merged = MergeTrace(parts, path);
    for (const std::string& part : parts) ::unlink(part.c_str());
    console.Print(TraceLine(path, merged.spans, merged.dropped));
    console.Flush(1.0);
    for (const std::string& part : merged.missing) {
      PrintError(fmt::format("muster: warning: the trace lacks a process: it left no {}\n", part));
    }
    if (merged.spans > 0) return ExitCode::kOk;
    const std::string why =
        merged.missing.size() == parts.size()
            ? "no process left its part"
            : fmt::format("the run ended before step {}; choose the steps with --trace-steps A-B",
                          config.run().trace_first_step());
    PrintError(fmt::format("muster: error: the trace is empty: {}\n", why));
  } catch (const Error& error) {
    PrintError(fmt::format(
        "muster: error: {}; its parts are in {}: `muster trace FILE --merge {}/trace.*.part` puts "
        "them together\n",
        error.what(), dir.shown(), dir.shown()));
  }
  return ExitCode::kFailure;
}

// Throws if the job cannot fit. Workers that are started by hand may be anywhere.
std::string MemoryWarning(const config::Config& config, const Graph& graph, bool by_hand) {
  LeastMemory needed = LeastMemoryOf(config, graph);
  if (by_hand) needed.each_worker = 0;
  return CheckMemory(needed, ReadMachineMemory());
}

// What its processes are told; the config's path follows.
JobPlan PlanOf(const LaunchArguments& arguments, const PreparedJob& job,
               const config::Config& config, const RunDir& dir) {
  return {.server_program = arguments.server_program,
          .worker_program = arguments.worker_program,
          .dir = &dir,
          .workers = static_cast<int>(config.cluster().workers()),
          .places = job.cards ? job.cards->Places() : std::vector<WorkerPlace>(),
          .endpoint = EndpointFor(config),
          .token = NewToken(),
          .resume = !arguments.resume.empty(),
          .on_lost = config.cluster().on_lost_worker(),
          .max_restarts = config.cluster().max_restarts(),
          .restart_window_s = config.cluster().restart_window_s(),
          .start_s = config.deadlines().start_s(),
          .silence_s = config.deadlines().silence_s()};
}

}  // namespace

std::string EndpointFor(const config::Config& config) {
  if (config.cluster().transport() == config::Cluster::TCP) return "tcp://127.0.0.1:*";
  if (config.cluster().transport() == config::Cluster::LOCAL)
    return "local://@muster-" + RandomHex(16);
  return "ipc://@muster-" + RandomHex(16);  // in the abstract namespace: no file to clean up
}

ExitCode WithOutput(ExitCode run, bool printed) {
  return run == ExitCode::kOk && !printed ? ExitCode::kFailure : run;
}

JobResult RunJob(const LaunchArguments& arguments, const PreparedJob& job, RunDir& dir,
                 SignalSource& signals) {
  config::Config config = job.config;
  config.mutable_run()->set_dir(dir.path());
  if (arguments.by_hand) ResolveEncryption(*arguments.by_hand, config);
  const int workers = static_cast<int>(config.cluster().workers());
  try {
    const bool traced = !config.run().trace_file().empty();
    if (traced) CheckTracePlace(config.run().trace_file());
    const bool resumed = !arguments.resume.empty();
    const JobConfig config_file(config, dir, resumed);
    if (traced) {
      CheckTracePath(config.run().trace_file());
      // Of an earlier job in this directory.
      for (const std::string& part : dir.TraceParts(workers)) ::unlink(part.c_str());
    }

    Console console(STDOUT_FILENO);
    const bool by_hand = arguments.by_hand.has_value();
    for (const std::string& line :
         HeaderLines(arguments.held_config ? dir.ConfigPath() : arguments.config_path, config,
                     job.graph, dir.shown(),
                     {.cores = AvailableCores(),
                     .by_hand = by_hand,
                     .memory = MemoryWarning(config, job.graph, by_hand),
                     .data = job.data_remark,
                     .resumed = job.resume_remark,
                     .cards = job.cards ? job.cards->Lines() : std::vector<std::string>(),
                     .initial_weights = job.initial_weights})) {
      console.Print(line);
    }
    if (!config_file.warning().empty()) console.Print("Warning: " + config_file.warning());
    JobPlan plan = PlanOf(arguments, job, config, dir);
    plan.config_path = config_file.path();
    if (resumed && by_hand) {
      if (auto loss = LostBefore(dir.path())) plan.losses.push_back(std::move(*loss));
    }
    if (!plan.places.empty()) {
      plan.place_again = [&](uint32_t rank) { return job.cards->PlaceAgain(rank); };
    }
    if (by_hand) PlanWorkersByHand(*arguments.by_hand, config, plan);
    JobDisplay display(console, plan.start_s, arguments.log_placement, by_hand);
    display.UsePlaces(plan.places);
    bool on_gpus = false;
    display.NoteAtStart([&](const events::Started& started) {
      on_gpus = AreOnGpus(started);
      return DeviceTexts(config, started);
    });
    JobOutcome outcome = WatchJobThroughLosses(plan, config, signals, console, display);
    if (by_hand) ForgetToken(*arguments.by_hand, dir);
    std::string was = dir.shown();
    if (!dir.Follow()) was.clear();
    ReportOutcome(outcome, workers, {.dir = dir, .by_hand = by_hand, .on_gpus = on_gpus}, was,
                  display.AtStep(), console);
    if (traced) {
      const ExitCode written = FinishTrace(config, dir, console);
      if (outcome.exit_code == ExitCode::kOk) outcome.exit_code = written;
    }
    return {outcome, ReportOutput(console, dir.shown())};
  } catch (const Error&) {
    dir.Discard();  // nothing has run
    throw;
  }
}

}  // namespace muster
