#include <fmt/core.h>

#include <exception>
#include <fstream>
#include <utility>

#include "common/base/log.h"
#include "common/base/memory.h"
#include "common/base/process.h"
#include "common/base/program_options.h"
#include "common/base/resource_limits.h"
#include "common/config/build_graph.h"
#include "common/config/compute_settings.h"
#include "common/config/config.h"
#include "common/config/data_format.h"
#include "common/link/protocol.h"
#include "common/link/tcp_address.h"
#include "common/plan/chunks.h"
#include "common/trace/session.h"
#include "common/transport/link_options.h"
#include "worker/client/gradient_guard.h"
#include "worker/client/terms.h"
#include "worker/commands.h"
#include "worker/data/photo_loader.h"
#include "worker/device.h"
#include "worker/relay_command.h"
#include "worker/run_command.h"
#include "worker/stop_signals.h"
#include "worker/trainer/device_images.h"
#include "worker/trainer/trainer.h"

namespace muster {
namespace {

struct WorkerArguments {
  std::string config, endpoint, token_file, log_dir;
  uint32_t rank = 0;
  bool join = false;
  int local_rank = -1;         // among the workers on this host; -1: unknown
  std::string rank_from;       // the launcher that gave the rank, for the log
  bool through_relay = false;  // of this host, which the worker of local rank 0 starts
  int parent = 0;
};

std::string NameOf(const WorkerArguments& arguments) {
  return arguments.join ? "a new worker" : fmt::format("worker {}", arguments.rank);
}

wire::Hello DescribeWorker(const config::Config& config, const Graph& graph, const Datasets& data) {
  wire::Hello hello;
  hello.set_threads(config.worker().threads());
  DescribeLayout(graph.layout(), hello);
  hello.set_train_samples(data.train->size());
  hello.set_test_samples(SizeOf(data.test));
  hello.set_validation_samples(SizeOf(data.validation));
  uint64_t fingerprint = 0, contents = 0;
  for (const auto& [set, factor] :
       {std::pair{&data.train, 1}, {&data.test, 3}, {&data.validation, 5}}) {
    if (*set == nullptr) continue;
    fingerprint ^= (*set)->Fingerprint() * static_cast<uint64_t>(factor);
    contents ^= (*set)->Contents() * static_cast<uint64_t>(factor);
  }
  hello.set_data_fingerprint(fingerprint);
  if (contents != 0) hello.set_data_contents(contents);
  for (const std::string& line : ComputeSettings(config)) hello.add_setting(line);
  TrimHello(hello);
  return hello;
}

// Decoder versions differ in their output, which changes the bits of a result.
std::string DecoderText(const config::Data& data) {
  if (data.format() != config::Data::IMAGE_FOLDER) return "";
  return fmt::format(", JPEG decoder {:016x}", DecoderFingerprint());
}

// The peak memory use of this process.
double PeakBytes() {
  std::ifstream file("/proc/self/status");
  double kibibytes = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("VmHWM:")) kibibytes = std::stod(line.substr(6));
  }
  return kibibytes * 1024;
}

// If these limits were too low, OpenMP would end the process and libzmq would abort.
void RequireLimits(const config::Config& config) {
  RequireOpenFiles("a worker", 64);
  // Training, an evaluation and a lost worker's slice may have such threads at the same time.
  const unsigned input = 3 * config.data().prefetch_threads() + 1;
  RequireThreads("a worker", config.worker().threads() + input + 5);
}

// `muster launch` saves the log of the workers that it starts. A worker started by hand writes its
// own log to the run directory, if there is one.
void KeepLog(const std::string& folder, uint32_t rank) {
  const std::string log = fmt::format("{}/worker-{}.log", folder, rank);
  if (!folder.empty() && AlsoLogTo(log)) {
    LogInfo("also logging to {}", log);
  } else {
    LogInfo("logging to standard error only; add 2>>worker-{}.log to save it", rank);
  }
}

void Work(const WorkerArguments& arguments) {
  config::Config config = ReadResolvedConfig(arguments.config);
  RequireLimits(config);
  const std::string token = RequireToken(arguments.token_file, NameOf(arguments));
  // Before there are threads, because it forks.
  const std::string endpoint =
      arguments.through_relay ? JoinRelay(arguments.endpoint, arguments.local_rank, config, token)
                              : arguments.endpoint;
  if (arguments.join) config.mutable_run()->clear_trace_file();  // trace files are named by rank
  const trace::Session session(trace::WorkerSession(config, arguments.rank), "compute");
  const Graph graph = BuildGraph(config.model(), InputShape(config.data()));
  const Datasets data = OpenDatasets(config.data(), config.run().seed());
  // Each worker of a host uses another GPU.
  const WorkerDevice device = MakeWorkerDevice(
      config,
      arguments.local_rank < 0 ? arguments.rank : static_cast<uint32_t>(arguments.local_rank));
  ClientOptions options;
  options.endpoint = endpoint;
  options.token = token;
  if (!arguments.join) options.rank = arguments.rank;
  options.leave = &WantedToLeave();
  options.hello = DescribeWorker(config, graph, data);
  options.hello.set_arithmetic(device.arithmetic + DecoderText(config.data()));
  options.arena_floats = graph.arena_floats();
  options.link = LinkOptionsFor(config, graph.layout());
  options.link.encrypt = IsEncrypted(config.cluster(), options.endpoint);
  if (options.link.encrypt) KeepOutOfCoreDumps();
  options.transport = config.cluster().transport();
  options.start_s = config.deadlines().start_s();
  options.silence_s = config.deadlines().silence_s();
  if (config.worker().check_gradients() || MUSTER_DEBUG_BUILD) {
    options.guard = std::make_shared<GradientGuard>(graph.layout());
  }
  const bool by_hand = arguments.parent == 0;
  // before joining, so that the log includes a refusal
  if (by_hand && !arguments.join) KeepLog(arguments.log_dir, arguments.rank);
  LogInfo("joining the job at {} as {}{}", options.endpoint, NameOf(arguments),
          arguments.rank_from.empty() ? "" : fmt::format(" ({})", arguments.rank_from));
  Client client(std::move(options));
  by_hand ? LeaveOnSignal(client.rank()) : FinishStepOnSignal();
  if (by_hand && arguments.join) KeepLog(arguments.log_dir, client.rank());
  const std::vector<Range> slices = CoveredBy(client.terms().nodes, client.plan().slices);
  std::string text;
  for (const Range& range : slices) {
    text += fmt::format("{}{} to {}", text.empty() ? "" : ", ", range.begin, range.end);
  }
  LogInfo("joined as rank {} over {}: slices {} of {}", client.rank(), client.link().transport(),
          text, client.plan().slices);
  const int64_t largest = LargestBatchesOf(client.plan(), client.terms().first_step, {}, 0).train;
  try {
    TestDevice(config, graph, largest, device);
    Trainer(config, graph, data, *device.backend, client).Run();
  } catch (const Error& error) {
    const bool is_end = error.code() == ExitCode::kPeerFailed || error.code() == ExitCode::kOk;
    if (!is_end) client.ReportFailure(error.what(), error.code());
    throw;
  } catch (const std::exception& error) {
    client.ReportFailure(error.what(), ExitCode::kFailure);
    throw;
  }
  const size_t card = device.backend->memory_use().most;
  LogInfo("done; peak memory {:.1f} MB{}", PeakBytes() * 1e-6,
          card == 0 ? "" : fmt::format(", GPU memory {:.3f} MB", static_cast<double>(card) * 1e-6));
}

}  // namespace

int TrainCommand(int argc, char** argv) {
  WorkerArguments arguments;
  ProgramOptions program{
      "Computes the gradients of a worker's slices of every batch, until the end of the job.\n"
      "Usually started by `muster launch` or `muster worker`."};
  program.Add("--config", arguments.config, "The resolved config from the run directory")
      .Required();
  program.Add("--rank", arguments.rank, "This worker's number, from 0")
      .RequiredUnless(program.AddFlag("--join", arguments.join,
                                      "Take any free rank; the job may already be running"));
  program.Add("--local-rank", arguments.local_rank,
              "Its number among the workers on this host, which chooses its GPU. Default: --rank");
  program.Add("--rank-from", arguments.rank_from, "The launcher that gave the rank, for the log");
  program
      .Add("--endpoint", arguments.endpoint,
           "The server's endpoint: local://@NAME, ipc://@NAME or tcp://HOST:PORT")
      .Required();
  program.AddFlag("--through-relay", arguments.through_relay,
                  "Join through a relay that the worker of local rank 0 on this host starts");
  program.Add("--token-file", arguments.token_file, kTokenFileText);
  program.Add("--log-dir", arguments.log_dir,
              "Without --parent: also write worker-RANK.log to this folder");
  program.Add("--parent", arguments.parent, kParentText);
  if (const auto exit_code = program.Parse(argc, argv)) return *exit_code;
  const std::string name = arguments.join ? "worker" : fmt::format("worker-{}", arguments.rank);
  return RunCommand(name, [&] {
    if (arguments.parent != 0) {
      DieWithParent(arguments.parent);
    } else {
      SayWhenStopped(arguments.join ? NameOf(arguments) : fmt::format("rank {}", arguments.rank));
    }
    Work(arguments);
  });
}

}  // namespace muster
