// muster-worker: one tower of a job. Started by `muster launch`, or by hand.
#include <CLI/CLI.hpp>
#include <csignal>
#include <exception>

#include "common/chunks.h"
#include "common/compute_settings.h"
#include "common/config.h"
#include "common/log.h"
#include "common/malloc_policy.h"
#include "common/parent.h"
#include "common/protocol.h"
#include "common/trace/session.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/trainer/trainer.h"

namespace muster {
namespace {

struct Arguments {
  std::string config, endpoint, token_file;
  std::vector<std::string> set;
  uint32_t rank = 0;
  uint32_t incarnation = 0;
  int parent = 0;
};

wire::Hello DescribeWorker(const config::Config& config, const Graph& graph, const Datasets& data) {
  wire::Hello hello;
  hello.set_threads(config.worker().threads());
  hello.set_graph_hash(graph.Hash());
  for (const Variable& variable : graph.variables()) {
    wire::VariableShape& entry = *hello.add_variable();
    entry.set_name(variable.name);
    for (const int64_t n : variable.shape) entry.add_shape(n);
  }
  for (const std::string& line : graph.Describe()) hello.add_layer(line);
  hello.set_train_samples(data.train->size());
  hello.set_test_samples(data.test->size());
  hello.set_data_fingerprint(data.train->Fingerprint() ^ (data.test->Fingerprint() * 3));
  for (const std::string& line : ComputeSettings(config)) hello.add_setting(line);
  return hello;
}

void Work(const Arguments& arguments) {
  std::vector<Setting> settings;
  for (const std::string& text : arguments.set) settings.push_back(ParseSetting(text));
  config::Config config = LoadConfig(arguments.config, settings);
  ResolveConfig(config, AvailableCores());
  const trace::Session session(trace::WorkerSession(config, arguments.rank), "compute");
  const Graph graph = Graph::Build(config.model(), InputShape(config.data()));
  const Datasets data = OpenDatasets(config.data(), config.run().seed());
  const std::unique_ptr<Backend> backend =
      MakeCpuBackend(static_cast<int>(config.worker().threads()),
                     {.winograd = config.worker().convolution() == config::Worker::AUTO});
  ClientOptions options;
  options.endpoint = arguments.endpoint;
  options.token = RequireToken(arguments.token_file, fmt::format("worker {}", arguments.rank));
  options.rank = arguments.rank;
  options.incarnation = arguments.incarnation;
  options.hello = DescribeWorker(config, graph, data);
  options.arena_floats = graph.arena_floats();
  options.link = LinkOptionsFor(config, graph);
  options.transport = config.cluster().transport();
  options.start_s = config.deadlines().start_s();
  options.silence_s = config.deadlines().silence_s();
  spdlog::info("joining the job at {} as rank {}", options.endpoint, options.rank);
  Client client(std::move(options));
  spdlog::info("joined as rank {} over {}: slices {} to {} of {}", arguments.rank,
               client.transport(), client.slices().begin, client.slices().end,
               client.plan().slices);
  try {
    Trainer(config, graph, data, *backend, client).Run();
  } catch (const Error& error) {
    if (error.code() != ExitCode::kPeerFailed) client.ReportFailure(error.what(), error.code());
    throw;
  } catch (const std::exception& error) {
    client.ReportFailure(error.what(), ExitCode::kFailure);
    throw;
  }
  spdlog::info("done");
}

int Main(int argc, char** argv) {
  Arguments arguments;
  CLI::App app{
      "One worker of a Muster job: computes gradients on its slices of every batch.\n"
      "Usually started by `muster launch` or `muster worker`."};
  app.add_option("--config", arguments.config, "Config file, the same for server and workers")
      ->required();
  app.add_option("--rank", arguments.rank, "This worker's number, from 0")->required();
  app.add_option("--endpoint", arguments.endpoint,
                 "The server's endpoint: local://@NAME, ipc://@NAME or tcp://HOST:PORT")
      ->required();
  app.add_option("--token-file", arguments.token_file,
                 "File with the job token, 32 hexadecimal digits. Default: $MUSTER_TOKEN");
  app.add_option("--set", arguments.set, "A setting of the config, path.to.key=value; repeatable")
      ->allow_extra_args(false);
  app.add_option("--incarnation", arguments.incarnation, "0 for the first process of this rank");
  app.add_option("--parent", arguments.parent, "Die when this process, the parent, dies");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(ExitCode::kUsage);
  }
  if (arguments.parent != 0) DieWithParent(arguments.parent);
  std::signal(SIGPIPE, SIG_IGN);
  KeepFreedMemory();
  InitLog("worker-" + std::to_string(arguments.rank));
  try {
    Work(arguments);
    return 0;
  } catch (const Error& error) {
    spdlog::error("{}", error.what());
    return static_cast<int>(error.code());
  } catch (const std::bad_alloc&) {
    spdlog::error("out of memory: use a smaller batch or fewer workers");
  } catch (const std::exception& error) {
    spdlog::error("{}", error.what());
  }
  return static_cast<int>(ExitCode::kFailure);
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) { return muster::Main(argc, argv); }
