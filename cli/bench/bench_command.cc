#include "cli/bench/bench_command.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "cli/bench/bench_text.h"
#include "cli/process/json_program.h"
#include "cli/text/console.h"
#include "common/base/error.h"
#include "common/base/json.h"
#include "common/config/build_graph.h"
#include "common/config/data_format.h"
#include "common/config/job_size.h"
#include "common/config/update_settings.h"
#include "common/graph/graph.h"
#include "common/plan/chunks.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

using Json = nlohmann::json;

constexpr int kMostBenchWorkers = 64;  // the limit of sync_bench and update_bench
constexpr double kSmall = 4096, kMedium = 1 << 20, kLarge = 32 << 20;
constexpr double kNearlySame = 1.2;  // of two sizes within this ratio, only one is measured

// Generous, because a benchmark of 4 GB takes minutes.
constexpr double kBenchDeadline = 3600;

std::vector<Json> RunProgram(const std::string& program,
                             const std::vector<std::string>& arguments) {
  if (!std::filesystem::exists(program)) {
    throw Error(ExitCode::kFailure,
                "{} does not exist: `muster bench` needs it; build and install with "
                "-DMUSTER_BUILD_BENCH=ON",
                program);
  }
  try {
    return RunJsonProgram(program, arguments, kBenchDeadline);
  } catch (const Error& error) {
    throw Error(ExitCode::kFailure, error.what());  // the program's exit code is not one of ours
  }
}

double Seconds(const Json& result, const char* key) {
  const auto found = result.find(key);
  if (found == result.end() || !found->is_number() || !result.value("verified", false)) {
    throw Error(ExitCode::kFailure, "a benchmark result has no verified {}: {}", key,
                JsonText(result));
  }
  return found->get<double>() * 1e-6;
}

// Returns the model's size and the standard sizes that are not close to it, in ascending order.
std::vector<double> SizesFor(double model_bytes) {
  const double mine = std::max(model_bytes, kSmall);
  std::vector<double> sizes{mine};
  for (const double standard : {kSmall, kMedium, kLarge}) {
    if (std::max(standard, mine) > kNearlySame * std::min(standard, mine)) {
      sizes.push_back(standard);
    }
  }
  std::ranges::sort(sizes);
  return sizes;
}

BenchModel ModelOfSize(double bytes) {
  BenchModel model{.name = "a model of this size", .shape = {.bytes = bytes}};
  model.shape.chunk_bytes = std::clamp(bytes / 24, 1048576.0, 4194304.0);
  return model;
}

// Reads the model from the config. Also sets the optimizer, the workers and the server's threads of
// `result`. Resolves only the size of the job, because the data may not be on this host.
BenchModel ModelOf(const BenchArguments& arguments, BenchResult& result) {
  config::Config config = LoadConfig(arguments.config_path, arguments.settings);
  if (arguments.workers > 0) {
    config.mutable_cluster()->set_workers(static_cast<uint32_t>(arguments.workers));
  }
  ResolveJobSize(config, AvailableCores());
  const Graph graph = BuildGraph(config.model(), InputShape(config.data()));
  BenchModel model{.name = config.model().name().empty() ? arguments.config_path
                                                         : config.model().name()};
  model.shape.bytes = static_cast<double>(graph.arena_floats() * sizeof(float));
  model.shape.states = TraitsOf(config.optimizer()).state_arrays;
  for (const Chunk& chunk : CutChunks(graph.layout(), config.cluster())) {
    model.shape.chunk_bytes =
        std::max(model.shape.chunk_bytes, static_cast<double>(chunk.floats() * sizeof(float)));
  }
  result.workers = static_cast<int>(config.cluster().workers());
  if (config.server().threads() > 0) {
    result.server_threads = static_cast<int>(config.server().threads());
  }
  result.optimizer = config::Optimizer::Type_Name(config.optimizer().type());
  result.wanted_instruction_set =
      config::Server::InstructionSet_Name(config.server().instruction_set());
  result.chunk_bytes = config.cluster().chunk_bytes();
  result.io_threads = std::max(1u, config.server().io_threads());
  result.wire_dtype = config::Cluster::WireDtype_Name(config.cluster().wire_dtype());
  // The backward pass costs about twice as much as the forward pass.
  model.flops_per_worker = 3 * graph.forward_flops() * ResolveBatch(config).per_worker;
  return model;
}

Json SyncResult(const BenchArguments& arguments, const BenchResult& result, double bytes,
                const std::string& transport) {
  const double round_guess = 2e-4 + bytes * (transport == "TCP" ? 2e-9 : 4e-10) * result.workers;
  const auto rounds = static_cast<int64_t>(std::clamp(1.5 / round_guess, 10.0, 3000.0));
  return RunProgram(arguments.sync_program, {"--workers",
                                             std::to_string(result.workers),
                                             "--size",
                                             fmt::format("{:.0f}", bytes),
                                             "--transport",
                                             transport,
                                             "--optimizer",
                                             result.optimizer,
                                             "--instruction-set",
                                             result.wanted_instruction_set,
                                             "--chunk-bytes",
                                             std::to_string(result.chunk_bytes),
                                             "--io-threads",
                                             std::to_string(result.io_threads),
                                             "--server-threads",
                                             std::to_string(result.server_threads),
                                             "--rounds",
                                             std::to_string(rounds),
                                             "--wire-dtype",
                                             transport == "TCP" ? result.wire_dtype : "FP32",
                                             "--json"})
      .front();
}

void Progress(bool shown, const std::string& text) {
  if (shown) fmt::print(stderr, "\r\033[K{}", text);
}

Json ToJson(const BenchResult& result) {
  const MachineCosts costs = CostsOf(result);
  Json rows = Json::array();
  for (const BenchRow& row : result.rows) {
    rows.push_back({{"bytes", row.bytes},
                    {"pass_us", row.update_s * 1e6},
                    {"limit_us", row.limit_s * 1e6},
                    {"local_p50_us", row.local_s * 1e6},
                    {"local_p99_us", row.local_p99_s * 1e6},
                    {"tcp_p50_us", row.tcp_s * 1e6},
                    {"tcp_p99_us", row.tcp_p99_s * 1e6}});
  }
  return {{"workers", result.workers},
          {"server_threads", result.server_threads},
          {"optimizer", result.optimizer},
          {"instruction_set", result.instruction_set},
          {"model", result.model.name},
          {"model_bytes", result.model.shape.bytes},
          {"local_latency_us", costs.local_latency_s * 1e6},
          {"tcp_latency_us", costs.tcp_latency_s * 1e6},
          {"memory_gb_per_s", costs.memory_bytes_per_s / 1e9},
          {"loopback_gb_per_s", costs.loopback_bytes_per_s / 1e9},
          {"rows", rows}};
}

}  // namespace

int RunBench(const BenchArguments& arguments) {
  BenchResult result{.workers = arguments.workers > 0 ? arguments.workers : 2,
                     .server_threads = std::clamp(AvailableCores(), 1, 4),
                     .optimizer = "MOMENTUM"};
  result.model = arguments.config_path.empty()
                     ? ModelOfSize(arguments.size > 0 ? arguments.size : kLarge)
                     : ModelOf(arguments, result);
  if (result.workers > kMostBenchWorkers) {
    throw Error(
        ExitCode::kUsage,
        "cluster.workers is {}: `muster bench` starts at most {} processes on this host; choose "
        "fewer (--workers N)",
        result.workers, kMostBenchWorkers);
  }
  result.model.shape.workers = result.workers;

  const bool shown = ::isatty(STDERR_FILENO) == 1;
  for (const double bytes : SizesFor(result.model.shape.bytes)) {
    const std::string of = fmt::format("{} bytes: ", static_cast<int64_t>(bytes));
    BenchRow row{.bytes = bytes};
    Progress(shown, of + "update");
    const Json update =
        RunProgram(arguments.update_program,
                   {"--size", fmt::format("{:.0f}", bytes), "--parts",
                    std::to_string(result.workers), "--instruction-set",
                    result.wanted_instruction_set, "--optimizer", result.optimizer, "--threads",
                    // Like the server, update small models in the loop itself.
                    std::to_string(bytes <= kNearlySame * kSmall ? 1 : result.server_threads),
                    "--seconds", "0.5", "--json"})
            .front();
    row.update_s = Seconds(update, "p50_us");
    row.limit_s = Seconds(update, "limit_us");
    result.instruction_set = update.value("instruction_set", "");
    for (const char* transport : {"LOCAL", "TCP"}) {
      Progress(shown, of + "rounds over " + transport);
      const Json sync = SyncResult(arguments, result, bytes, transport);
      const bool local = std::string(transport) == "LOCAL";
      (local ? row.local_s : row.tcp_s) = Seconds(sync, "p50_us");
      (local ? row.local_p99_s : row.tcp_p99_s) = Seconds(sync, "p99_us");
    }
    result.rows.push_back(row);
  }
  Progress(shown, "");
  Console console(STDOUT_FILENO);
  if (arguments.json) {
    console.PrintAsIs(JsonText(ToJson(result)));
  } else {
    for (const std::string& line : BenchLines(result)) console.Print(line);
  }
  console.Finish(60);
  return 0;
}

}  // namespace muster
