// muster-worker: one tower of a job. Started by `muster launch`, or by hand.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>

#include "common/base/arena.h"
#include "common/base/core_dumps.h"
#include "common/base/log.h"
#include "common/base/malloc_policy.h"
#include "common/base/number_list.h"
#include "common/base/parent.h"
#include "common/base/program_options.h"
#include "common/base/resident_memory.h"
#include "common/base/resource_limits.h"
#include "common/config/build_graph.h"
#include "common/config/compute_settings.h"
#include "common/config/config.h"
#include "common/link/encryption.h"
#include "common/link/protocol.h"
#include "common/model/load_weights.h"
#include "common/plan/chunks.h"
#include "common/trace/session.h"
#include "common/transport/link_options.h"
#include "worker/client/describe_layout.h"
#include "worker/client/gradient_guard.h"
#include "worker/device.h"
#include "worker/trainer/predict.h"
#include "worker/trainer/trainer.h"
#include "worker/trainer/worker_memory.h"

namespace muster {
namespace {

struct Arguments {
  std::string config, endpoint, token_file;
  std::vector<std::string> set;
  uint32_t rank = 0;
  int parent = 0;
  bool memory = false, join = false;
  std::string predict, weights;
  bool training_set = false;
};

std::string NameOf(const Arguments& arguments) {
  return arguments.join ? "a worker that joins" : fmt::format("worker {}", arguments.rank);
}

// Somebody wants this worker to leave the job.
std::atomic<bool> leave = false;
static_assert(std::atomic<bool>::is_always_lock_free);

wire::Hello DescribeWorker(const config::Config& config, const Graph& graph, const Datasets& data) {
  wire::Hello hello;
  hello.set_threads(config.worker().threads());
  DescribeLayout(graph.layout(), hello);
  hello.set_train_samples(data.train->size());
  hello.set_test_samples(data.test->size());
  hello.set_data_fingerprint(data.train->Fingerprint() ^ (data.test->Fingerprint() * 3));
  for (const std::string& line : ComputeSettings(config)) hello.add_setting(line);
  TrimHello(hello);
  return hello;
}

config::Config LoadConfigOf(const Arguments& arguments) {
  std::vector<Setting> settings;
  for (const std::string& text : arguments.set) settings.push_back(ParseSetting(text));
  return LoadConfig(arguments.config, settings);
}

double Resident() { return static_cast<double>(ResidentBytes().value_or(0)); }

// The most that this process ever had.
double PeakBytes() {
  std::ifstream file("/proc/self/status");
  double kibibytes = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("VmHWM:")) kibibytes = std::stod(line.substr(6));
  }
  return kibibytes * 1024;
}

Datasets OpenIfThere(const config::Config& config) {
  try {
    return OpenDatasets(config.data(), config.run().seed());
  } catch (const Error&) {
    return {};  // a run would say what is wrong; sizes do not need it
  }
}

// A line of JSON for each row. The last one is measured: with all kernels made, but none of the
// arrays, this process is as large as a worker is without them.
void PrintMemory(const Arguments& arguments) {
  config::Config config = LoadConfigOf(arguments);
  ResolveForMachine(config, AvailableCores());
  if (arguments.rank >= config.cluster().workers()) {
    throw Error(ExitCode::kUsage, "--rank {}: expected 0 to {}, since cluster.workers is {}",
                arguments.rank, config.cluster().workers() - 1, config.cluster().workers());
  }
  const Graph graph = BuildGraph(config.model(), InputShape(config.data()));
  const double before = Resident();
  const Datasets data = OpenIfThere(config);
  const double of_data = Resident() - before;
  const WorkerDevice device = MakeWorkerDevice(config, arguments.rank);
  Tower tower(graph, *device.backend, config.run().seed());
  std::vector<MemoryRow> rows =
      WorkerMemory(config, graph, data, arguments.rank, *device.backend, tower);
  rows.push_back({"code, libraries, kernels", Resident() - of_data});
  constexpr const char* kHolders[] = {"process", "server", "host", "card"};
  for (const MemoryRow& row : rows) {
    fmt::print("{{\"what\":\"{}\",\"bytes\":{:.0f},\"holder\":\"{}\"}}\n", row.what, row.bytes,
               kHolders[static_cast<int>(row.holder)]);
  }
}

// A line of JSON for each sample, when all are computed: nothing else is printed between them.
void PrintPredictions(const Arguments& arguments) {
  config::Config config = LoadConfigOf(arguments);
  ResolveConfig(config, AvailableCores());
  const Graph graph = BuildGraph(config.model(), InputShape(config.data()));
  const Datasets data = OpenDatasets(config.data(), config.run().seed());
  const Dataset& set = arguments.training_set ? *data.train : *data.test;
  const std::vector<int64_t> samples = ParseNumberList("--predict", arguments.predict, set.size());
  Arena weights(graph.arena_floats());
  (void)LoadWeights(SafetensorsReader(arguments.weights), graph, {}, weights.floats());
  const WorkerDevice device = MakeWorkerDevice(config, 0);
  std::string lines;
  PredictSamples(config, graph, *device.backend, weights.floats(), set, samples,
                 [&](int64_t sample, int32_t label, std::span<const float> logits) {
                   lines += fmt::format(R"({{"sample":{},"label":{},"logits":[)", sample, label);
                   for (const float logit : logits) lines += fmt::format("{},", logit);
                   lines.back() = ']';
                   lines += "}\n";
                 });
  fmt::print("{}", lines);
}

// OpenMP ends the process, and libzmq aborts, where they cannot have what they need.
void RequireLimits(const config::Config& config) {
  RequireOpenFiles("a worker", 64);
  const unsigned input = config.data().prefetch_threads() + 1;
  RequireThreads("a worker", config.worker().threads() + input + 4);
}

void LeaveOnSignal(uint32_t rank);

void Work(const Arguments& arguments) {
  config::Config config = LoadConfigOf(arguments);
  ResolveConfig(config, AvailableCores());
  RequireLimits(config);
  if (arguments.join) config.mutable_run()->clear_trace_file();  // the parts are named by rank
  const trace::Session session(trace::WorkerSession(config, arguments.rank), "compute");
  const Graph graph = BuildGraph(config.model(), InputShape(config.data()));
  const Datasets data = OpenDatasets(config.data(), config.run().seed());
  const WorkerDevice device = MakeWorkerDevice(config, arguments.rank);
  ClientOptions options;
  options.endpoint = arguments.endpoint;
  options.token = RequireToken(arguments.token_file, NameOf(arguments));
  if (!arguments.join) options.rank = arguments.rank;
  options.leave = &leave;
  options.hello = DescribeWorker(config, graph, data);
  options.hello.set_arithmetic(device.arithmetic);
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
  LogInfo("joining the job at {} as {}", options.endpoint, NameOf(arguments));
  Client client(std::move(options));
  if (arguments.parent == 0) LeaveOnSignal(client.rank());
  const std::vector<Range> slices = CoveredBy(client.first_share().nodes, client.plan().slices);
  std::string text;
  for (const Range& range : slices) {
    text += fmt::format("{}{} to {}", text.empty() ? "" : ", ", range.begin, range.end);
  }
  LogInfo("joined as rank {} over {}: slices {} of {}", client.rank(), client.transport(), text,
          client.plan().slices);
  try {
    Trainer(config, graph, data, *device.backend, client).Run();
  } catch (const Error& error) {
    if (error.code() != ExitCode::kPeerFailed) client.ReportFailure(error.what(), error.code());
    throw;
  } catch (const std::exception& error) {
    client.ReportFailure(error.what(), ExitCode::kFailure);
    throw;
  }
  const size_t card = device.backend->memory_use().most;
  LogInfo("done; used {:.1f} MB of memory at most{}", PeakBytes() * 1e-6,
          card == 0 ? ""
                    : fmt::format(", and {:.3f} MB on the card", static_cast<double>(card) * 1e-6));
}

// The line that a worker that was started by hand leaves when somebody stops it.
std::array<char, 64> stop_line;
size_t stop_line_size = 0;

void OnStopSignal(int signal) {
  (void)!::write(STDERR_FILENO, stop_line.data(), stop_line_size);
  const char* const by = signal == SIGINT ? "SIGINT (Ctrl-C)\n" : "SIGTERM\n";
  (void)!::write(STDERR_FILENO, by, std::strlen(by));
  ::raise(signal);  // with its usual effect: the server notices that this process has ended
}

// What is ignored stays so: a shell's background job.
void Handle(int signal, const struct sigaction& action) {
  struct sigaction before {};
  if (::sigaction(signal, nullptr, &before) == 0 && before.sa_handler != SIG_IGN) {
    ::sigaction(signal, &action, nullptr);
  }
}

void SayWhenStopped(const std::string& who) {
  const int size =
      std::snprintf(stop_line.data(), stop_line.size(), "muster: %s was stopped by ", who.c_str());
  stop_line_size = static_cast<size_t>(std::max(size, 0));  // it fits, whatever the rank
  struct sigaction action {};
  action.sa_handler = OnStopSignal;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_NODEFER);
  for (const int signal : {SIGINT, SIGTERM}) Handle(signal, action);
}

void OnLeaveSignal(int) {
  constexpr char kText[] =
      "muster: this worker leaves when it has done its part (SIGTERM again ends it at once)\n";
  (void)!::write(STDERR_FILENO, kText, sizeof kText - 1);
  leave = true;
}

// A worker that was started by hand is stopped by its service manager, or by a scheduler that wants
// the machine: the job goes on without it, and nothing is computed twice.
void LeaveOnSignal(uint32_t rank) {
  SayWhenStopped(fmt::format("rank {}", rank));
  struct sigaction action {};
  action.sa_handler = OnLeaveSignal;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  Handle(SIGTERM, action);
}

int Main(int argc, char** argv) {
  Arguments arguments;
  ProgramOptions program{
      "One worker of a Muster job: computes gradients on its slices of every batch.\n"
      "Usually started by `muster launch` or `muster worker`."};
  program.Add("--config", arguments.config, "Config file, the same for server and workers")
      .Required();
  ProgramOptions::Option rank =
      program.Add("--rank", arguments.rank, "This worker's number, from 0");
  rank.RequiredUnless(program.AddFlag("--join", arguments.join,
                                      "Take any free place, also of a job that runs already"));
  ProgramOptions::Option endpoint =
      program.Add("--endpoint", arguments.endpoint,
                  "The server's endpoint: local://@NAME, ipc://@NAME or tcp://HOST:PORT");
  const ProgramOptions::Option memory = program.AddFlag(
      "--memory", arguments.memory,
      "Print what memory this worker would use, a line of JSON for each part, and exit");
  endpoint.RequiredUnless(memory);
  const ProgramOptions::Option predict = program.Add(
      "--predict", arguments.predict,
      "Print what the network makes of these samples of the test set (0-9,17), a line of JSON for\n"
      "each, and exit");
  endpoint.RequiredUnless(predict);
  program.Add("--weights", arguments.weights, "With --predict: the weights, a safetensors file");
  program.AddFlag("--training-set", arguments.training_set,
                  "With --predict: samples of the training set, as an evaluation would see them");
  program.Add("--token-file", arguments.token_file,
              "File with the job token, 32 hexadecimal digits. Default: $MUSTER_TOKEN");
  program.Add("--set", arguments.set, "A setting of the config, path.to.key=value; repeatable")
      .Repeatable();
  program.Add("--parent", arguments.parent, "Die when this process, the parent, dies");
  if (const auto exit_code = program.Parse(argc, argv)) return *exit_code;
  if (arguments.parent != 0) {
    DieWithParent(arguments.parent);
  } else {
    SayWhenStopped(arguments.join ? NameOf(arguments) : fmt::format("rank {}", arguments.rank));
  }
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGUSR1, SIG_IGN);  // the server's: schedulers send it to every process of a job
  IgnoreFileSizeSignal();
  KeepFreedMemory();
  InitLog(arguments.join ? "worker" : "worker-" + std::to_string(arguments.rank));
  try {
    if (arguments.memory) {
      PrintMemory(arguments);
    } else if (!arguments.predict.empty()) {
      PrintPredictions(arguments);
    } else {
      Work(arguments);
    }
    return 0;
  } catch (const Error& error) {
    LogError("{}", error.what());
    return static_cast<int>(error.code());
  } catch (const std::bad_alloc&) {
    LogError("out of memory: use a smaller batch or fewer workers");
  } catch (const std::exception& error) {
    LogError("{}", error.what());
  }
  return static_cast<int>(ExitCode::kFailure);
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) { return muster::Main(argc, argv); }
