#include "worker/relay_command.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <exception>
#include <memory>
#include <thread>
#include <utility>

#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/process.h"
#include "common/base/program_options.h"
#include "common/base/resource_limits.h"
#include "common/base/signals.h"
#include "common/config/build_graph.h"
#include "common/config/config.h"
#include "common/config/data_format.h"
#include "common/link/protocol.h"
#include "common/link/secret.h"
#include "common/link/tcp_address.h"
#include "common/transport/combined_server_link.h"
#include "common/transport/link_options.h"
#include "common/transport/transport.h"
#include "worker/commands.h"
#include "worker/device.h"
#include "worker/relay/relay.h"
#include "worker/run_command.h"
#include "worker/stop_signals.h"

namespace muster {
namespace {

using std::chrono::steady_clock;

struct RelayArguments {
  std::string config, token_file;
  std::string endpoint;  // of the server
  std::string listen;    // for this host's workers
  std::string bind;      // for relays of other hosts
  std::string via;       // of the relay through which it reaches the server
  int patience = 10;     // seconds to wait for the relay at `via`
  bool gpu_sums = false;
  int parent = 0;
};

constexpr std::chrono::seconds kPatience{10};  // an earlier relay of this host may have the port
constexpr std::chrono::milliseconds kPause{100};

// Other relays go directly to the server if this one does not listen.
std::unique_ptr<ServerLink> ListenForRelays(const std::string& endpoint, uint64_t job,
                                            const LinkOptions& options) {
  for (const auto until = steady_clock::now() + kPatience;;) {
    try {
      return Listen(endpoint, job, config::Cluster::TCP, options);
    } catch (const Error& error) {
      if (steady_clock::now() < until) {
        std::this_thread::sleep_for(kPause);
        continue;
      }
      LogWarning("relays of other hosts must go to the server: {}", error.what());
      return nullptr;
    }
  }
}

// The workers do not depend on it: without an adder, they copy their gradients to the host.
std::unique_ptr<GpuAdder> AdderOf(const config::Config& config) {
  try {
    std::unique_ptr<GpuAdder> adder = MakeGpuAdder(config);
    LogInfo("adding the gradients of this host's workers in its GPUs");
    return adder;
  } catch (const Error& error) {
    LogWarning("worker.gpu_sums: adding gradients on the host instead: {}", error.what());
    return nullptr;
  }
}

std::string Upstream(const RelayArguments& arguments) {
  if (arguments.via.empty()) return arguments.endpoint;
  const auto until = steady_clock::now() + std::chrono::seconds(arguments.patience);
  while (steady_clock::now() < until) {
    if (Answers(arguments.via, std::chrono::seconds(1))) return arguments.via;
    std::this_thread::sleep_for(kPause);
  }
  LogWarning("the relay at {} does not answer; going to the server directly", arguments.via);
  return arguments.endpoint;
}

[[noreturn]] void Serve(const RelayArguments& arguments, const config::Config& config,
                        const std::string& token) {
  RequireOpenFiles("a relay", 256);
  RequireThreads("a relay", 8);
  // Only a program knows its variables.
  const VariableLayout layout =
      HasProgram(config) ? VariableLayout()
                         : BuildGraph(config.model(), InputShape(config.data())).layout();
  LinkOptions link = LinkOptionsFor(config, layout);
  link.token = token;
  KeepOutOfCoreDumps();
  std::unique_ptr<GpuAdder> adder = arguments.gpu_sums ? AdderOf(config) : nullptr;
  const uint64_t job = JobOf(link.token);
  std::unique_ptr<ServerLink> below = Listen(arguments.listen, job, config::Cluster::LOCAL, link);
  if (!arguments.bind.empty()) {
    link.encrypt = IsEncrypted(config.cluster(), arguments.bind);
    if (auto others = ListenForRelays(arguments.bind, job, link)) {
      below = Combine(std::move(below), std::move(others));
    }
  }
  const std::string upstream = Upstream(arguments);
  link.encrypt = IsEncrypted(config.cluster(), upstream);
  LogInfo("connecting the workers at {} to {}", arguments.listen, upstream);
  const std::chrono::duration<double> patience(config.deadlines().start_s());
  const bool on_servers_host = upstream.starts_with("ipc://");
  Relay(std::move(below),
        Connect(upstream, job, on_servers_host ? config::Cluster::AUTO : config::Cluster::TCP,
                patience, link),
        {.without_workers = patience,
         .silence = std::chrono::duration<double>(config.deadlines().silence_s())},
        std::move(adder))
      .Run();
}

}  // namespace

int RelayCommand(int argc, char** argv) {
  RelayArguments arguments;
  ProgramOptions program{
      "Connects the workers of this host to the server, and sends the sums of their gradients."};
  program.Add("--config", arguments.config, "The resolved config from the run directory")
      .Required();
  program.Add("--listen", arguments.listen, "Where the workers join: local://@NAME").Required();
  program.Add("--endpoint", arguments.endpoint, "The server's endpoint").Required();
  program.Add("--bind", arguments.bind, "An endpoint tcp://ADDRESS:PORT for relays of other hosts");
  program.Add("--via", arguments.via,
              "The endpoint of another host's relay, to connect to instead of the server if it "
              "answers");
  program
      .Add("--patience", arguments.patience, "With --via: how many seconds to wait for its answer")
      .ShowDefault();
  program.AddFlag("--gpu-sums", arguments.gpu_sums,
                  "Let the GPUs of this host add the gradients of its workers");
  program.Add("--token-file", arguments.token_file, kTokenFileText);
  program.Add("--parent", arguments.parent, kParentText);
  if (const auto exit_code = program.Parse(argc, argv)) return *exit_code;
  return RunCommand("relay", [&] {
    if (arguments.parent != 0) {
      DieWithParent(arguments.parent);
      FinishStepOnSignal();
    } else {
      SayWhenStopped("the relay");
    }
    Serve(arguments, ReadResolvedConfig(arguments.config),
          RequireToken(arguments.token_file, "a relay"));
  });
}

std::string JoinRelay(const std::string& endpoint, int local_rank, const config::Config& config,
                      const std::string& token) {
  RelayArguments relay{.endpoint = endpoint};
  // All workers of the host can compute it. The server has another port after a restart.
  relay.listen = "local://@muster-relay-" + DigitsFrom(token, "muster relay " + endpoint);
  if (local_rank != 0) return relay.listen;
  const pid_t child = ::fork();
  if (child < 0) {
    throw Error(ExitCode::kFailure, "cannot start the relay of this host: {}", ErrorText(errno));
  }
  if (child > 0) return relay.listen;
  // Signals for this worker are not for the others, and no launcher must wait for the relay because
  // of a pipe.
  ::setsid();
  for (const int signal : kStopSignals) std::signal(signal, SIG_IGN);
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  ::dup2(null, STDIN_FILENO);
  ::dup2(null, STDOUT_FILENO);
  ::syscall(SYS_close_range, STDERR_FILENO + 1, ~0U, 0);
  InitLog("relay");
  int code = static_cast<int>(ExitCode::kFailure);
  try {
    Serve(relay, config, token);
  } catch (const Error& error) {
    code = static_cast<int>(error.code());
    if (error.code() != ExitCode::kOk) LogError("exit code {}: {}", code, error.what());
  } catch (const std::exception& error) {
    LogError("{}", error.what());
  }
  ::_exit(code);
}

}  // namespace muster
