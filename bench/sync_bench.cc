// Measures a round of synchronous training without the computation: K worker processes push
// prepared gradients, the server averages and updates, and every worker gets the new weights.
//
//   sync_bench --workers 2 --size 104857600 --transport LOCAL --optimizer MOMENTUM [--memory]
//   [--json]
//
// Uses real processes, the real server and the real client. Every worker compares the weights after
// the last round bit by bit with a reference (round_reference.h), and figures are printed only if
// all agree. The limit is the time for the unavoidable memory traffic of the update, measured with
// the same number of threads in the same run (memory_limit.h).
#include <algorithm>
#include <cstdio>

#include "bench/memory_limit.h"
#include "bench/round_reference.h"
#include "bench/sync_job.h"
#include "bench/sync_rounds.h"
#include "common/base/error.h"
#include "common/base/json.h"
#include "common/base/log.h"
#include "common/base/memory.h"
#include "common/base/program_options.h"
#include "common/config/build_graph.h"
#include "common/config/config.h"
#include "common/config/data_format.h"
#include "ps/update/choose_kernels.h"
#include "ps/update/optimizer.h"

namespace muster::bench {
namespace {

int64_t DefaultRounds(size_t bytes) {
  return std::clamp<int64_t>(static_cast<int64_t>(4e9 / (static_cast<double>(bytes) + 4e5)), 30,
                             8000);
}

// Compares the memory of a job, minus that of a job with a tiny model, with the necessary memory:
// two weight buffers, the optimizer state and, over shared memory, one gradient buffer per worker.
nlohmann::ordered_json MemoryResult(const SyncJob& job, double memory, double arena, int states) {
  SyncOptions small = job.options;
  small.bytes = 4096;
  small.rounds = 30;
  const double programs = RunSyncRounds(MakeSyncJob(small)).memory;
  const double least = arena * (2 + states + job.options.workers);
  return {{"memory_bytes", memory},
          {"memory_of_programs", programs},
          {"memory_least", least},
          {"memory_ratio", (memory - programs) / least}};
}

nlohmann::ordered_json Measure(const SyncOptions& options) {
  const SyncJob job = MakeSyncJob(options);
  RoundReference::CheckFormula(job.config, options.write);
  const Graph graph = BuildGraph(job.config.model(), InputShape(job.config.data()));
  const size_t bytes = graph.arena_floats() * sizeof(float);
  const PassShape shape{
      .floats = graph.arena_floats(),
      .gradients = static_cast<int>(options.workers),
      .states = static_cast<int>(
          Optimizer(job.config.optimizer(), *AvailableKernels().back()).state_arenas())};
  // Measure the limit before and after, because the memory speed of a shared machine changes within
  // seconds.
  const auto limit_now = [&] {
    return MemoryLimitSeconds(shape, static_cast<int>(options.server_threads));
  };
  const double limit_before = limit_now();
  auto [seconds, memory] = RunSyncRounds(job);
  const double limit = std::min(limit_before, limit_now());
  std::sort(seconds.begin(), seconds.end());
  const double p50 = seconds[seconds.size() / 2], p99 = seconds[seconds.size() * 99 / 100];
  nlohmann::ordered_json result{{"workers", options.workers},
                                {"bytes", bytes},
                                {"transport", options.transport},
                                {"optimizer", options.optimizer},
                                {"wire_dtype", options.wire_dtype},
                                {"encryption", options.encryption},
                                {"server_threads", options.server_threads},
                                {"chunk_bytes", options.chunk_bytes},
                                {"workers_write", options.write},
                                {"rounds", seconds.size()},
                                {"p50_us", p50 * 1e6},
                                {"p99_us", p99 * 1e6},
                                {"gb_per_s", UpdateBytes(shape) / p50 / 1e9},
                                {"limit_us", limit * 1e6},
                                {"limit_gb_per_s", UpdateBytes(shape) / limit / 1e9},
                                {"limit_ratio", limit / p50},
                                {"verified", true}};
  if (options.memory) {
    result.update(MemoryResult(job, memory, static_cast<double>(bytes), shape.states));
  }
  return result;
}

void Print(const SyncOptions& options, const nlohmann::ordered_json& result) {
  const auto number = [&](const char* key) { return result.at(key).get<double>(); };
  fmt::print(
      "{} workers, {} bytes, {}, {}{}: verified\n"
      "round  p50 {:.1f} us   p99 {:.1f} us   ({:.0f} rounds)\n"
      "update {:.1f} GB/s of memory traffic; memory limit: {:.1f} us, {:.1f} GB/s; ratio {:.2f}\n",
      options.workers, result.at("bytes").get<size_t>(), options.transport, options.optimizer,
      options.write ? ", workers write and read" : "", number("p50_us"), number("p99_us"),
      number("rounds"), number("gb_per_s"), number("limit_us"), number("limit_gb_per_s"),
      number("limit_ratio"));
  if (!options.memory) return;
  fmt::print(
      "memory {:.1f} MB, {:.1f} MB of it for the programs; the rest is {:.3f} x the necessary "
      "memory\n",
      number("memory_bytes") / 1e6, number("memory_of_programs") / 1e6, number("memory_ratio"));
}

void Run(SyncOptions options) {
  if (options.rounds == 0) options.rounds = DefaultRounds(options.bytes);
  SetLogLevel(LogLevel::kError);
  const nlohmann::ordered_json result = Measure(options);
  if (options.json) {
    std::printf("%s\n", JsonText(result).c_str());
  } else {
    Print(options, result);
  }
}

}  // namespace
}  // namespace muster::bench

int main(int argc, char** argv) {
  muster::KeepFreedMemory();  // like server and workers
  muster::bench::SyncOptions options;
  muster::ProgramOptions program(
      "Measures a round of push, average, update and pull between real processes.");
  program.Add("--workers", options.workers).ShowDefault().InRange(1, 64);
  program
      .Add("--size", options.bytes,
           "size of the weights in bytes, 4096 to 4294967296; also 4KiB, 100MiB (2^20), 400MB "
           "(10^6), 4GiB")
      .ShowDefault()
      .AsBytes()
      .InRange(4096, int64_t{1} << 32);
  program.Add("--transport", options.transport, "LOCAL, IPC or TCP").ShowDefault();
  program.Add("--optimizer", options.optimizer, "see optimizer.type").ShowDefault();
  program.Add("--wire-dtype", options.wire_dtype, "FP32, BF16 or FP16; only FP32 with LOCAL")
      .ShowDefault();
  program.Add("--encryption", options.encryption, "NONE or CURVE; with TCP").ShowDefault();
  program.Add("--instruction-set", options.instruction_set, "see server.instruction_set")
      .ShowDefault();
  program.Add("--io-threads", options.io_threads, "I/O threads of the server's ZeroMQ link")
      .ShowDefault();
  program.Add("--server-threads", options.server_threads).ShowDefault();
  program
      .Add("--chunk-bytes", options.chunk_bytes,
           "1024 to 67108864, also 64KiB; 0: the default of cluster.chunk_bytes")
      .AsBytes()
      .InRange(0, 64 << 20);
  program.Add("--rounds", options.rounds, "number of rounds; 0: depends on the size")
      .InRange(0, 1000000);
  program.AddFlag("--write", options.write,
                  "workers also write their gradients and read the weights");
  program.AddFlag("--memory", options.memory,
                  "also measure the memory of server and workers, counting shared pages once");
  program.AddFlag("--json", options.json, "print one JSON object");
  if (const auto exit_code = program.Parse(argc, argv)) return *exit_code;
  try {
    muster::bench::Run(options);
    return 0;
  } catch (const muster::Error& error) {
    std::fprintf(stderr, "sync_bench: error: %s\n", error.what());
    return static_cast<int>(error.code());
  }
}
