#include "launch/launch_command.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <limits>

#include "common/atomic_file.h"
#include "common/config_check.h"
#include "common/error.h"
#include "common/graph.h"
#include "common/instruction_set.h"
#include "common/join.h"
#include "common/link/tcp_address.h"
#include "common/protocol.h"
#include "common/resource_limits.h"
#include "launch/console.h"
#include "launch/hand_text.h"
#include "launch/job_display.h"
#include "launch/job_text.h"
#include "launch/job_token.h"
#include "launch/log_tail.h"
#include "launch/memory_check.h"
#include "launch/repeat.h"
#include "launch/run_dir.h"
#include "launch/signal_source.h"
#include "launch/supervisor.h"
#include "launch/trace/merge.h"
#include "launch/units.h"
#include "launch/worker_memory.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLogLinesShown = 10;

void CheckPrograms(const LaunchArguments& arguments) {
  for (const std::string& program : {arguments.server_program, arguments.worker_program}) {
    if (::access(program.c_str(), X_OK) == 0) continue;
    throw Error(ExitCode::kFailure, "{}: {}; it belongs beside muster: build or install all of it",
                program, std::strerror(errno));
  }
}

// A run reads its data many times over, so looking through them once beforehand costs little: what
// is wrong with them is said once, before any process could say it, and nothing has to be cleaned
// up.
// Returns a remark on them, or "".
std::string CheckData(const LaunchArguments& arguments, const config::Config& config) {
  if (!arguments.count_data) return "";
  std::string remark;
  int64_t samples = config.data().synthetic().train_samples();
  if (NeedsFiles(config.data())) {
    const DataCount data = arguments.count_data(config);
    if (!data.problem.empty()) throw Error(data.code, data.problem);
    samples = data.train;
    remark = data.remark;
  }
  if (config.run().trace_file().empty()) return remark;
  const std::string trouble = TraceTrouble(config.run(), PlanSteps(config, samples).total_steps);
  if (!trouble.empty()) throw Error(ExitCode::kUsage, "run.trace_first_step: {}", trouble);
  return remark;
}

// A config.txtpb that an earlier run left names that run's directory. Launching from it repeats
// the run, in a new directory.
void ForgetOwnDirectory(config::Config& config, const LaunchArguments& arguments) {
  bool asked_for = std::any_of(arguments.settings.begin(), arguments.settings.end(),
                               [](const Setting& setting) { return setting.path == "run.dir"; });
  std::error_code error;
  fs::path holder = fs::absolute(arguments.config_path).parent_path();
  if (!asked_for && config.run().has_dir() && fs::equivalent(config.run().dir(), holder, error)) {
    config.mutable_run()->clear_dir();
  }
}

bool HasRunDir(const config::Config& config) { return !config.run().dir().empty(); }

RunDir MakeRunDir(const config::Config& config, const std::string& config_path) {
  if (HasRunDir(config)) return RunDir::Open(config.run().dir());
  return RunDir::CreateNew("runs", RunName(config_path), std::time(nullptr));
}

void WriteResolved(const config::Config& config, const RunDir& dir) {
  try {
    WriteConfig(config, dir.ConfigPath());
  } catch (const Error& error) {
    throw Error(ExitCode::kUsage, "{}; choose another run directory with --run-dir", error.what());
  }
}

std::string Endpoint(const config::Config& config) {
  if (config.cluster().transport() == config::Cluster::TCP) return "tcp://127.0.0.1:*";
  if (config.cluster().transport() == config::Cluster::LOCAL)
    return "local://@muster-" + RandomHex(16);
  return "ipc://@muster-" + RandomHex(16);  // in the abstract namespace: no file to clean up
}

// The token of a job whose workers are started by hand, and the file that they are told of; empty
// if it came from the environment.
struct HandToken {
  std::string token, file;
};

HandToken TakeToken(const WorkersByHand& by_hand, const RunDir& dir) {
  HandToken result{FindToken(by_hand.token_file), by_hand.token_file};
  if (!result.token.empty()) return result;
  result.file = dir.shown() + "/token";
  if (fs::exists(fs::symlink_status(dir.TokenPath()))) {  // of an attempt that never got to run
    result.token = ReadToken(dir.TokenPath());
  } else {
    result.token = NewToken();
    WriteTokenFile(dir.TokenPath(), result.token);
  }
  return result;
}

// A token is for one run. That of a server that never got to run stays for the next attempt, since
// somebody may have carried it to other hosts.
void ForgetToken(const WorkersByHand& by_hand, const RunDir& dir) {
  if (by_hand.token_file.empty() && dir.IsUsed()) ::unlink(dir.TokenPath().c_str());
}

// `usual` is what a launch of this config would use.
ListenAddress AddressByHand(const WorkersByHand& by_hand, const config::Config& config,
                            const std::string& usual) {
  const bool chosen = !by_hand.endpoint.empty() || !by_hand.bind.empty();
  // Nobody but this host shares memory: any name will do, and an address cannot.
  if (!chosen && config.cluster().transport() == config::Cluster::LOCAL) return {usual, usual};
  return ChooseListenAddress(by_hand.endpoint, by_hand.bind);
}

void PlanWorkersByHand(const WorkersByHand& by_hand, const config::Config& config, JobPlan& plan) {
  const ListenAddress address = AddressByHand(by_hand, config, plan.endpoint);
  const HandToken token = TakeToken(by_hand, *plan.dir);
  plan.endpoint = address.endpoint;
  plan.bind = address.bind;
  plan.token = token.token;
  plan.invite_workers = [=, &plan](const std::string& endpoint) {
    return HandLines(address, endpoint, plan.workers, *plan.dir, token.file);
  };
}

// What is wrong with these is said before anything is made.
void CheckWorkersByHand(const WorkersByHand& by_hand) {
  const ListenAddress address = ChooseListenAddress(by_hand.endpoint, by_hand.bind);
  if (IsTcp(address.bind)) (void)ResolvedAddress(TcpAddress::Parse(address.bind));
  if (!by_hand.token_file.empty()) (void)ReadToken(by_hand.token_file);
}

std::string FailureText(const JobOutcome& outcome, const std::string& shown_dir, bool by_hand) {
  std::string text = "muster: error: " + outcome.failure + "\n";
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

// A run whose files are gone is no success, whatever it reached.
void ReportMissing(const std::vector<std::string>& missing, const RunDir& dir,
                   JobOutcome& outcome) {
  if (missing.empty()) return;
  PrintError(
      fmt::format("muster: error: {} was moved or removed while the run went on, or some of its "
                  "files were: it lacks {}; what is printed above is all there is\n",
                  dir.shown(), Join(missing, ", ")));
  if (outcome.exit_code == ExitCode::kOk) outcome.exit_code = ExitCode::kFailure;
}

void ReportOutcome(JobOutcome& outcome, int workers, const RunDir& dir, const std::string& at_step,
                   bool by_hand, Console& console) {
  console.ClearLive();
  std::vector<std::string> missing;
  if (Whole(outcome.summary, "steps") > 0) {
    const int logs_here = by_hand ? 0 : workers;
    missing = dir.MissingFiles(logs_here);
    console.Print("");
    for (const std::string& line :
         SummaryLines(outcome.summary, workers, dir, missing.empty() ? FilesText(logs_here) : "")) {
      console.Print(line);
    }
  }
  if (outcome.stop_signal != 0) {
    console.Print(
        fmt::format("Stopped by SIG{}{}. {} keeps the metrics and the logs; the weights "
                    "of an unfinished run are not kept.",
                    ::sigabbrev_np(outcome.stop_signal), at_step, dir.shown()));
  }
  console.Flush(1.0);
  if (!outcome.failure.empty()) PrintError(FailureText(outcome, dir.shown(), by_hand));
  ReportMissing(missing, dir, outcome);
}

// Whether everything could be printed that anybody wanted to read.
bool ReportOutput(const Console& console, const std::string& shown_dir) {
  if (!console.closed()) return true;
  const std::string trouble = console.trouble();
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

// What the header could not know yet: settings that the size of the data set makes void.
std::vector<std::string> NotesAtStart(const config::Config& config, int64_t train_samples) {
  const std::vector<std::string> said = NoEffectTexts(config);
  std::vector<std::string> lines;
  for (const std::string& text : NoEffectTexts(config, train_samples)) {
    if (std::ranges::find(said, text) == said.end()) lines.push_back("No effect: " + text);
  }
  return lines;
}

struct JobResult {
  JobOutcome outcome;
  bool printed = true;  // all of it, unless nobody wanted to read on
};

ExitCode WithOutput(ExitCode run, bool printed) {
  return run == ExitCode::kOk && !printed ? ExitCode::kFailure : run;
}

// One job in its directory: header, run, summary. Throws Error if it could not be started; the
// directory is then taken back.
JobResult RunJob(const LaunchArguments& arguments, config::Config config, const Graph& graph,
                 const std::string& data_remark, RunDir& dir, SignalSource& signals) {
  config.mutable_run()->set_dir(dir.path());
  const int workers = static_cast<int>(config.cluster().workers());
  try {
    WriteResolved(config, dir);
    const bool traced = !config.run().trace_file().empty();
    if (traced) {
      CheckTracePath(config.run().trace_file());
      // Of an earlier job in this directory.
      for (const std::string& part : dir.TraceParts(workers)) ::unlink(part.c_str());
    }

    Console console(STDOUT_FILENO);
    const bool by_hand = arguments.by_hand.has_value();
    for (const std::string& line : HeaderLines(arguments.config_path, config, graph, dir.shown(),
                                               {.cores = AvailableCores(),
                                               .by_hand = by_hand,
                                               .memory = MemoryWarning(config, graph, by_hand),
                                               .data = data_remark})) {
      console.Print(line);
    }
    JobPlan plan{.server_program = arguments.server_program,
                 .worker_program = arguments.worker_program,
                 .dir = &dir,
                 .workers = workers,
                 .endpoint = Endpoint(config),
                 .token = NewToken(),
                 .start_s = config.deadlines().start_s(),
                 .silence_s = config.deadlines().silence_s()};
    if (by_hand) PlanWorkersByHand(*arguments.by_hand, config, plan);
    JobDisplay display(console, plan.start_s, arguments.log_placement, by_hand);
    display.NoteAtStart([&](int64_t train) { return NotesAtStart(config, train); });
    Supervisor supervisor(plan, signals, console, display);
    JobOutcome outcome = supervisor.Run();
    if (by_hand) ForgetToken(*arguments.by_hand, dir);
    ReportOutcome(outcome, workers, dir, display.AtStep(), by_hand, console);
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

// The config with everything filled in, and the network: what both a run and a dry run begin with.
struct Prepared {
  config::Config config;
  Graph graph;
  std::string data_remark = {};
};

Prepared Prepare(const LaunchArguments& arguments, bool dry) {
  config::Config config = LoadConfig(arguments.config_path, arguments.settings);
  ForgetOwnDirectory(config, arguments);
  if (dry) {
    ResolveForMachine(config, AvailableCores());
  } else {
    ResolveConfig(config, AvailableCores());
  }
  // Its server runs here: said now, not when it has started.
  (void)ChooseInstructionSet(config.server().instruction_set());
  Graph graph = Graph::Build(config.model(), InputShape(config.data()));
  return {std::move(config), std::move(graph)};
}

std::string SeedDir(const std::string& base, uint64_t seed) {
  return fmt::format("{}/seed-{}", base, seed);
}

// Seeds S ... S + N - 1.
uint64_t LastSeed(uint64_t first, int repeat) {
  const auto more = static_cast<uint64_t>(repeat - 1);
  if (first <= std::numeric_limits<uint64_t>::max() - more) return first + more;
  throw Error(ExitCode::kUsage, "--repeat {} and the seed {}: expected a seed of at most {}",
              repeat, first, std::numeric_limits<uint64_t>::max() - more);
}

// Before the first run, so that a series does not end at its third.
void CheckSeriesDir(const RunDir& base, uint64_t first_seed, int repeat) {
  if (fs::exists(fs::symlink_status(base.RepeatPath()))) {
    throw Error(ExitCode::kUsage,
                "the directory {} already holds the repeat.json of another series; choose another "
                "with --run-dir, or move that series away",
                base.shown());
  }
  for (int i = 0; i < repeat; ++i) {
    RunDir::CheckUnused(SeedDir(base.shown(), first_seed + static_cast<uint64_t>(i)));
  }
}

// Whether they could be printed, or nobody wanted to read them.
bool PrintLines(const std::vector<std::string>& lines) {
  Console console(STDOUT_FILENO);
  for (const std::string& line : lines) console.Print(line);
  console.Flush(60);
  return console.trouble().empty();
}

// A worker knows what its own memory is, but takes a while to say it: it is asked only where what
// is certain is much of this machine's.
void CheckLargeJob(const LaunchArguments& arguments, const Prepared& prepared) {
  const MachineMemory machine = ReadMachineMemory();
  if (4 * LeastMemoryOf(prepared.config, prepared.graph).all() < machine.all) return;
  const auto worker =
      AskWorkerMemory(arguments.worker_program, arguments.config_path, arguments.settings,
                      prepared.config, prepared.config.cluster().workers() - 1);
  (void)CheckMemory(WholeMemoryOf(prepared.config, prepared.graph, worker), machine);
}

int RunSeries(const LaunchArguments& arguments, Prepared& prepared, SignalSource& signals) {
  if (!prepared.config.run().trace_file().empty()) {
    throw Error(ExitCode::kUsage,
                "--repeat and --trace: expected one of them: a series has no single trace");
  }
  const uint64_t first_seed = prepared.config.run().seed();
  (void)LastSeed(first_seed, arguments.repeat);
  RunDir base = MakeRunDir(prepared.config, arguments.config_path);
  CheckSeriesDir(base, first_seed, arguments.repeat);
  std::vector<RepeatedRun> runs;
  ExitCode exit_code = ExitCode::kOk;
  bool printed = true;
  for (int i = 0; i < arguments.repeat && exit_code == ExitCode::kOk; ++i) {
    const uint64_t seed = first_seed + static_cast<uint64_t>(i);
    prepared.config.mutable_run()->set_seed(seed);
    printed &= PrintLines({fmt::format("{}run {} of {}: seed {}", i == 0 ? "" : "\n", i + 1,
                                       arguments.repeat, seed)});
    RunDir dir = RunDir::Open(SeedDir(base.shown(), seed));
    JobResult result;
    try {
      result =
          RunJob(arguments, prepared.config, prepared.graph, prepared.data_remark, dir, signals);
    } catch (const Error&) {
      base.Discard();  // if it is new and still empty
      throw;
    }
    printed &= result.printed;
    exit_code = result.outcome.exit_code;
    runs.push_back(
        {seed, dir.shown(), static_cast<int>(exit_code), std::move(result.outcome.summary)});
    // After each run: what is there is kept, whatever becomes of the next one.
    WriteFileAtomically(base.RepeatPath(), RepeatJson(runs));
  }
  std::vector<std::string> lines{
      "", fmt::format("{} of {}:", Plural(std::ssize(runs), "run"), arguments.repeat)};
  for (std::string& line : RepeatLines(runs)) lines.push_back(std::move(line));
  lines.push_back("  in             " + base.shown() + "/repeat.json");
  printed &= PrintLines(lines);
  return static_cast<int>(WithOutput(exit_code, printed));
}

}  // namespace

int RunLaunch(const LaunchArguments& arguments) {
  Prepared prepared = Prepare(arguments, /*dry=*/false);
  CheckPrograms(arguments);
  const uint32_t workers = prepared.config.cluster().workers();
  // The server's limit is that of this process.
  RequireOpenFiles(fmt::format("a job of {}", Plural(int64_t{workers}, "worker")),
                   OpenFilesOfServer(workers));
  if (arguments.by_hand) CheckWorkersByHand(*arguments.by_hand);
  prepared.data_remark = CheckData(arguments, prepared.config);
  if (!arguments.by_hand) CheckLargeJob(arguments, prepared);
  SignalSource signals;
  if (arguments.repeat > 0) return RunSeries(arguments, prepared, signals);
  RunDir dir = MakeRunDir(prepared.config, arguments.config_path);
  const JobResult result =
      RunJob(arguments, prepared.config, prepared.graph, prepared.data_remark, dir, signals);
  return static_cast<int>(WithOutput(result.outcome.exit_code, result.printed));
}

int DryRun(const LaunchArguments& arguments) {
  const Prepared prepared = Prepare(arguments, /*dry=*/true);
  std::string shown_dir = "runs/" + RunName(arguments.config_path) + "-<date>-<time>";
  if (HasRunDir(prepared.config)) {
    shown_dir = prepared.config.run().dir();
    RunDir::CheckUnused(shown_dir);
  }
  if (arguments.repeat > 0) {
    shown_dir += fmt::format("/seed-{} ... seed-{}", prepared.config.run().seed(),
                             LastSeed(prepared.config.run().seed(), arguments.repeat));
  }
  CheckPrograms(arguments);
  const DataCount data = arguments.count_data(prepared.config);
  const std::vector<MemoryRow> worker_memory =
      AskWorkerMemory(arguments.worker_program, arguments.config_path, arguments.settings,
                      prepared.config, prepared.config.cluster().workers() - 1);
  PrintResult(Join(DryRunLines(arguments.config_path, prepared.config, prepared.graph, data,
                               worker_memory, shown_dir),
                   "\n"));
  try {
    (void)CheckMemory(WholeMemoryOf(prepared.config, prepared.graph, worker_memory),
                      ReadMachineMemory());
  } catch (const Error& error) {
    PrintError(fmt::format("muster: error: a run would end here: {}\n", error.what()));
    return static_cast<int>(error.code());
  }
  if (data.problem.empty() || prepared.config.data().dir().empty()) return 0;
  PrintError(fmt::format("muster: error: a run would end here: {}\n", data.problem));
  return static_cast<int>(data.code);
}

}  // namespace muster
