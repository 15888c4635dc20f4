// muster-worker: one tower of a job. Started by `muster launch`, or by hand.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>

#include "common/base/log.h"
#include "common/base/malloc_policy.h"
#include "common/base/parent.h"
#include "common/base/program_options.h"
#include "common/base/resource_limits.h"
#include "common/config/build_graph.h"
#include "common/config/compute_settings.h"
#include "common/config/config.h"
#include "common/link/protocol.h"
#include "common/plan/chunks.h"
#include "common/trace/session.h"
#include "common/transport/link_options.h"
#include "worker/client/describe_layout.h"
#include "worker/device.h"
#include "worker/trainer/trainer.h"
#include "worker/trainer/worker_memory.h"

namespace muster {
namespace {

struct Arguments {
  std::string config, endpoint, token_file;
  std::vector<std::string> set;
  uint32_t rank = 0;
  int parent = 0;
  bool memory = false;
};

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

// Of this process: what `top` shows as RES.
double ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  double size = 0, resident = 0;
  file >> size >> resident;
  return resident * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

// The most that it ever was.
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
  const double before = ResidentBytes();
  const Datasets data = OpenIfThere(config);
  const double of_data = ResidentBytes() - before;
  const WorkerDevice device = MakeWorkerDevice(config, arguments.rank);
  Tower tower(graph, *device.backend, config.run().seed());
  std::vector<MemoryRow> rows = WorkerMemory(config, graph, data, arguments.rank, tower);
  rows.push_back({"code, libraries, kernels", ResidentBytes() - of_data});
  constexpr const char* kHolders[] = {"process", "server", "host"};
  for (const MemoryRow& row : rows) {
    fmt::print("{{\"what\":\"{}\",\"bytes\":{:.0f},\"holder\":\"{}\"}}\n", row.what, row.bytes,
               kHolders[static_cast<int>(row.holder)]);
  }
}

// OpenMP ends the process, and libzmq aborts, where they cannot have what they need.
void RequireLimits(const config::Config& config) {
  RequireOpenFiles("a worker", 64);
  const unsigned input = config.data().prefetch_threads() + 1;
  RequireThreads("a worker", config.worker().threads() + input + 4);
}

void Work(const Arguments& arguments) {
  config::Config config = LoadConfigOf(arguments);
  ResolveConfig(config, AvailableCores());
  RequireLimits(config);
  const trace::Session session(trace::WorkerSession(config, arguments.rank), "compute");
  const Graph graph = BuildGraph(config.model(), InputShape(config.data()));
  const Datasets data = OpenDatasets(config.data(), config.run().seed());
  const WorkerDevice device = MakeWorkerDevice(config, arguments.rank);
  ClientOptions options;
  options.endpoint = arguments.endpoint;
  options.token = RequireToken(arguments.token_file, fmt::format("worker {}", arguments.rank));
  options.rank = arguments.rank;
  options.hello = DescribeWorker(config, graph, data);
  options.hello.set_arithmetic(device.arithmetic);
  options.arena_floats = graph.arena_floats();
  options.link = LinkOptionsFor(config, graph.layout());
  options.transport = config.cluster().transport();
  options.start_s = config.deadlines().start_s();
  options.silence_s = config.deadlines().silence_s();
  LogInfo("joining the job at {} as rank {}", options.endpoint, arguments.rank);
  Client client(std::move(options));
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
  LogInfo("done; used {:.1f} MB of memory at most", PeakBytes() * 1e-6);
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

void SayWhenStopped(uint32_t rank) {
  const int size = std::snprintf(stop_line.data(), stop_line.size(),
                                 "muster: rank %u was stopped by ", static_cast<unsigned>(rank));
  stop_line_size = static_cast<size_t>(std::max(size, 0));  // it fits, whatever the rank
  struct sigaction action {};
  action.sa_handler = OnStopSignal;
  action.sa_flags = static_cast<int>(SA_RESETHAND | SA_NODEFER);
  for (const int signal : {SIGINT, SIGTERM}) {
    struct sigaction before {};
    // What is ignored stays so: a shell's background job.
    if (::sigaction(signal, nullptr, &before) == 0 && before.sa_handler != SIG_IGN) {
      ::sigaction(signal, &action, nullptr);
    }
  }
}

int Main(int argc, char** argv) {
  Arguments arguments;
  ProgramOptions program{
      "One worker of a Muster job: computes gradients on its slices of every batch.\n"
      "Usually started by `muster launch` or `muster worker`."};
  program.Add("--config", arguments.config, "Config file, the same for server and workers")
      .Required();
  program.Add("--rank", arguments.rank, "This worker's number, from 0").Required();
  ProgramOptions::Option endpoint =
      program.Add("--endpoint", arguments.endpoint,
                  "The server's endpoint: local://@NAME, ipc://@NAME or tcp://HOST:PORT");
  const ProgramOptions::Option memory = program.AddFlag(
      "--memory", arguments.memory,
      "Print what memory this worker would use, a line of JSON for each part, and exit");
  endpoint.RequiredUnless(memory);
  program.Add("--token-file", arguments.token_file,
              "File with the job token, 32 hexadecimal digits. Default: $MUSTER_TOKEN");
  program.Add("--set", arguments.set, "A setting of the config, path.to.key=value; repeatable")
      .Repeatable();
  program.Add("--parent", arguments.parent, "Die when this process, the parent, dies");
  if (const auto exit_code = program.Parse(argc, argv)) return *exit_code;
  if (arguments.parent != 0) {
    DieWithParent(arguments.parent);
  } else {
    SayWhenStopped(arguments.rank);
  }
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGUSR1, SIG_IGN);  // the server's: schedulers send it to every process of a job
  IgnoreFileSizeSignal();
  KeepFreedMemory();
  InitLog("worker-" + std::to_string(arguments.rank));
  try {
    arguments.memory ? PrintMemory(arguments) : Work(arguments);
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
