// muster-server: owns the variables of a job. Started by `muster launch` or by hand.
#include <fmt/core.h>

#include <csignal>
#include <exception>

#include "common/base/log.h"
#include "common/base/memory.h"
#include "common/base/process.h"
#include "common/base/program_options.h"
#include "common/base/resource_limits.h"
#include "common/base/signals.h"
#include "common/base/text.h"
#include "common/checkpoint/resumable_config.h"
#include "common/config/build_graph.h"
#include "common/config/config.h"
#include "common/config/data_format.h"
#include "common/config/resolved.h"
#include "common/link/protocol.h"
#include "common/link/tcp_address.h"
#include "common/trace/session.h"
#include "common/transport/link_options.h"
#include "common/transport/transport.h"
#include "ps/record/restart_record.h"
#include "ps/record/resume.h"
#include "ps/record/run_lock.h"
#include "ps/run/intake.h"
#include "ps/run/server.h"

namespace muster {
namespace {

struct Arguments {
  std::string config, endpoint, bind, token_file;
  int report_fd = -1;
  int parent = 0;
  bool resume = false;
  std::string without;
  std::vector<std::string> lost;  // earlier servers of this run
  std::vector<std::string> replay;
};

// Checks resource limits first, because libzmq aborts when it hits one.
void RequireLimits(const config::Config& config, size_t checkpoints) {
  const std::string who = fmt::format("a server of {} workers", config.cluster().workers());
  RequireOpenFiles(
      who, OpenFilesOfServer(config.cluster().workers()) + static_cast<unsigned>(checkpoints));
  RequireThreads(who, config.server().threads() + config.server().io_threads() + 3);
}

// Finds the checkpoint to resume or replay from, logs it, and adds warnings for the launcher.
ResumePoint GoOnFrom(const Arguments& arguments, const config::Config& config,
                     std::vector<std::string>& warnings) {
  if (arguments.resume && config.run().dir().empty()) {
    throw Error(ExitCode::kUsage,
                "--resume: the config has no run.dir; set it to the run's directory");
  }
  if (!arguments.resume && !config.run().dir().empty()) {
    throw Error(ExitCode::kUsage,
                "--replay writes no files: expected a config without run.dir, got run.dir {}",
                config.run().dir());
  }
  ResumePoint point =
      arguments.resume ? FindResumePoint(config) : FindReplay(arguments.replay, config);
  for (const DamagedCheckpoint& one : point.checkpoint.damaged) {
    warnings.push_back(fmt::format("the checkpoint {} is damaged: {}", one.name.Text(), one.why));
  }
  if (!warnings.empty()) {
    warnings.push_back(
        fmt::format("resuming from the previous checkpoint, {}", point.checkpoint.name.Text()));
  }
  for (const std::string& note : point.notes) {
    warnings.push_back(note + ": bits may differ from an uninterrupted run");
  }
  LogInfo("resuming from {}", point.checkpoint.reader->folder());
  return point;
}

// Adds to the run's config.txtpb the batch, the length and drop_last, which only the program knew,
// so that the next server, another launch of the file and `muster verify` have them.
void KeepRun(const std::string& path, config::Config config, const config::Run& run,
             Recorder& recorder) {
  const bool is_complete = config.run().ByteSizeLong() == run.ByteSizeLong();
  if (is_complete || path != config.run().dir() + "/config.txtpb") return;
  *config.mutable_run() = run;
  try {
    WriteRunConfig(WrittenIn(path), config, path);
  } catch (const Error& error) {
    recorder.Warn(
        fmt::format("{}; it lacks the batch and the length that the program says", error.what()));
  }
}

// Runs the server. Returns a message about data that could not be written, or "".
std::string Serve(const Arguments& arguments, int signal_fd) {
  config::Config config = ReadResolvedConfig(arguments.config);
  RequireLimits(config, arguments.replay.size());
  const RunLock lock = RunLock::OfServer(config);
  std::vector<std::string> warnings;
  std::optional<ResumePoint> resume;
  const bool replays = !arguments.replay.empty();
  if (replays && (arguments.resume || arguments.replay.size() < 2)) {
    throw Error(ExitCode::kUsage,
                "--replay: expected at least two --replay options and no --resume");
  }
  if (arguments.resume || replays) resume = GoOnFrom(arguments, config, warnings);
  const trace::Session session(trace::ServerSession(config), "loop");
  const std::string token = RequireToken(arguments.token_file, "the server");
  Graph graph;  // of a program's job: empty until its variables are known
  if (!HasProgram(config)) graph = BuildGraph(config.model(), InputShape(config.data()));
  const ListenAddress address = ChooseListenAddress(arguments.endpoint, arguments.bind);
  LinkOptions options = LinkOptionsFor(config, graph.layout());
  options.token = token;
  options.encrypt = IsEncrypted(config.cluster(), address);
  if (options.encrypt) KeepOutOfCoreDumps();
  options.advertised = IsTcp(address.endpoint) ? address.endpoint : "";
  std::unique_ptr<ServerLink> link =
      Listen(address.bind, JobOf(token), config.cluster().transport(), options);
  Recorder recorder(config, graph, arguments.report_fd, resume ? &resume->state() : nullptr,
                    ParseLosses(arguments.lost));
  for (const std::string& warning : warnings) recorder.Warn(warning);
  events::Event event;
  event.mutable_listening()->set_endpoint(link->endpoint());
  recorder.Record(event);
  LogInfo("listening on {}", link->endpoint());
  Taken taken;
  if (HasProgram(config)) {
    taken = Intake(config, arguments.config, token, *link, recorder, signal_fd,
                   resume ? resume->checkpoint.reader.get() : nullptr)
                .Await();
    graph = Graph(taken.layout);
    KeepRun(arguments.config, config, taken.config.run(), recorder);
    config = taken.config;
    if (resume) (void)CheckResumable(resume->state().config(), config);
  }
  Server server(config, graph, token, std::move(link), recorder, signal_fd,
                resume ? &*resume : nullptr, &taken);
  if (!arguments.without.empty()) {
    server.StartWithout(
        ParseNumberList("--without", arguments.without, config.cluster().workers()));
  }
  return server.Serve().trouble;
}

int Main(int argc, char** argv) {
  Arguments arguments;
  ProgramOptions program{
      "The server of a Muster job: averages gradients, updates the weights and sends them to "
      "workers.\n"
      "Usually started by `muster launch` or `muster server`."};
  program.Add("--config", arguments.config, "Config file; must be the same for server and workers")
      .Required();
  program.Add("--endpoint", arguments.endpoint,
              "Where workers connect: local://@NAME, ipc://@NAME or tcp://HOST:PORT; port *: any "
              "free port, name *: a random one. Default: tcp://127.0.0.1:*");
  program.Add("--bind", arguments.bind,
              "Where to listen, if different from --endpoint; tcp://*:PORT: all interfaces");
  program.Add("--token-file", arguments.token_file,
              "File with the job token (32 hexadecimal digits). Default: $MUSTER_TOKEN");
  program.Add("--report-fd", arguments.report_fd,
              "Open file descriptor for events, one JSON object per line (PROTOCOL.md, Events)");
  program.AddFlag("--resume", arguments.resume,
                  "Resume from the newest checkpoint in the config's run directory");
  program
      .Add("--replay", arguments.replay,
           "Checkpoint folder (repeat, oldest first): start at the first one, compare the run with "
           "the others, and stop at the last one. Writes no files (muster verify)")
      .Repeatable();
  program
      .Add("--lost", arguments.lost,
           "STEP,SECONDS,CAUSE of an earlier server that was lost, SECONDS on CLOCK_MONOTONIC; for "
           "--resume")
      .Repeatable();
  program.Add("--without", arguments.without,
              "Ranks, such as 2,3: do not wait for these workers, whose host is lost");
  program.Add("--parent", arguments.parent, "Exit when this parent process dies");
  if (const auto exit_code = program.Parse(argc, argv)) return *exit_code;
  if (arguments.parent != 0) DieWithParent(arguments.parent);
  std::signal(SIGPIPE, SIG_IGN);
  IgnoreFileSizeSignal();
  InitLog("server");
  try {
    const UniqueFd signals = ReceiveSignals({SIGUSR1, SIGUSR2});
    KeepFreedMemory();
    const std::string trouble = Serve(arguments, signals.get());
    // The launcher reports trouble itself, from the summary.
    return trouble.empty() || arguments.report_fd >= 0 ? 0 : static_cast<int>(ExitCode::kFailure);
  } catch (const Error& error) {
    LogError("exit code {}: {}", static_cast<int>(error.code()), error.what());
    return static_cast<int>(error.code());
  } catch (const std::bad_alloc&) {
    LogError("out of memory: the server needs about 3 x the size of the model plus 1 x per worker");
  } catch (const std::exception& error) {
    LogError("{}", error.what());
  }
  return static_cast<int>(ExitCode::kFailure);
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) { return muster::Main(argc, argv); }
