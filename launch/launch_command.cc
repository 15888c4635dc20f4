#include "launch/launch_command.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <filesystem>

#include "common/error.h"
#include "common/graph.h"
#include "common/link/tcp_address.h"
#include "common/protocol.h"
#include "launch/console.h"
#include "launch/hand_text.h"
#include "launch/job_display.h"
#include "launch/job_text.h"
#include "launch/job_token.h"
#include "launch/log_tail.h"
#include "launch/run_dir.h"
#include "launch/signal_source.h"
#include "launch/supervisor.h"
#include "launch/units.h"

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

RunDir MakeRunDir(const config::Config& config, const std::string& config_path) {
  if (config.run().has_dir() && !config.run().dir().empty()) {
    return RunDir::Open(config.run().dir());
  }
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

void PlanWorkersByHand(const WorkersByHand& by_hand, JobPlan& plan) {
  const ListenAddress address = ChooseListenAddress(by_hand.endpoint, by_hand.bind);
  const HandToken token = TakeToken(by_hand, *plan.dir);
  plan.endpoint = address.endpoint;
  plan.bind = address.bind;
  plan.token = token.token;
  plan.invite_workers = [=, &plan](const std::string& endpoint) {
    return HandLines(address, endpoint, plan.workers, *plan.dir, token.file);
  };
}

std::string FailureText(const JobOutcome& outcome, const std::string& shown_dir, bool by_hand) {
  std::string text = "muster: error: " + outcome.failure + "\n";
  if (!outcome.server_said.empty()) text += "  the server says: " + outcome.server_said + "\n";
  if (!outcome.log_path.empty()) {
    std::string shown = shown_dir + "/" + fs::path(outcome.log_path).filename().string();
    std::vector<std::string> tail = LastLines(outcome.log_path, kLogLinesShown);
    text += tail.empty() ? "  its log is empty: " + shown + "\n"
                         : "  the last lines of " + shown + ":\n";
    for (const std::string& line : tail) text += "    | " + line + "\n";
  }
  return text +
         (by_hand ? "  the server has stopped, and told the workers to; its files are in "
                  : "  every process of the job has been stopped; its files are in ") +
         shown_dir + "\n";
}

void ReportOutcome(const JobOutcome& outcome, int workers, const RunDir& dir,
                   const std::string& at_step, bool by_hand, Console& console) {
  console.ClearLive();
  if (Whole(outcome.summary, "steps") > 0) {
    console.Print("");
    for (const std::string& line : SummaryLines(outcome.summary, workers, dir, by_hand)) {
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
  if (console.closed()) {
    PrintError("muster: standard output was closed early; the run's results are in " + dir.shown() +
               "\n");
  }
}

}  // namespace

int RunLaunch(const LaunchArguments& arguments) {
  config::Config config = LoadConfig(arguments.config_path, arguments.settings);
  ForgetOwnDirectory(config, arguments);
  ResolveConfig(config, AvailableCores());
  Graph graph = Graph::Build(config.model(), InputShape(config.data()));
  CheckPrograms(arguments);
  const bool by_hand = arguments.by_hand.has_value();
  // What is wrong with these is said before anything is made.
  if (by_hand) (void)ChooseListenAddress(arguments.by_hand->endpoint, arguments.by_hand->bind);
  if (by_hand && !arguments.by_hand->token_file.empty()) {
    (void)ReadToken(arguments.by_hand->token_file);
  }

  SignalSource signals;
  RunDir dir = MakeRunDir(config, arguments.config_path);
  config.mutable_run()->set_dir(dir.path());
  int workers = static_cast<int>(config.cluster().workers());
  try {
    WriteResolved(config, dir);

    Console console(STDOUT_FILENO);
    for (const std::string& line :
         HeaderLines(arguments.config_path, config, graph, dir, by_hand)) {
      console.Print(line);
    }
    JobPlan plan{.server_program = arguments.server_program,
                 .worker_program = arguments.worker_program,
                 .dir = &dir,
                 .workers = workers,
                 .endpoint = Endpoint(config),
                 .token = NewToken(),
                 .start_s = config.deadlines().start_s()};
    if (by_hand) PlanWorkersByHand(*arguments.by_hand, plan);
    JobDisplay display(console, plan.start_s, by_hand);
    Supervisor supervisor(plan, signals, console, display);
    JobOutcome outcome = supervisor.Run();
    ReportOutcome(outcome, workers, dir, display.AtStep(), by_hand, console);
    return static_cast<int>(outcome.exit_code);
  } catch (const Error&) {
    dir.Discard();  // nothing has run
    throw;
  }
}

}  // namespace muster
