// One round of synchronous training without the training: K worker processes push gradients that
// are ready, the server averages and updates, every worker has the new weights.
//
//   sync_bench --workers 2 --size 104857600 --transport LOCAL --optimizer MOMENTUM [--memory]
//   [--json]
//
// Real processes, the real server and the real client. Every worker checks the weights that it
// sees after the last round against a reference (round_reference.h), bit by bit; a figure is
// printed only if all agree. The limit: the memory traffic that the update cannot avoid, by the
// same number of threads, in the same run (memory_limit.h).
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <vector>

#include "bench/memory_limit.h"
#include "bench/process_memory.h"
#include "bench/round_reference.h"
#include "common/base/error.h"
#include "common/base/log.h"
#include "common/base/malloc_policy.h"
#include "common/base/parent.h"
#include "common/base/program_options.h"
#include "common/config/build_graph.h"
#include "common/config/config.h"
#include "common/link/encryption.h"
#include "common/link/protocol.h"
#include "common/transport/link_options.h"
#include "common/transport/transport.h"
#include "ps/choose_kernels.h"
#include "ps/optimizer.h"
#include "ps/server.h"
#include "worker/client/client.h"
#include "worker/client/describe_layout.h"

namespace muster::bench {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  uint32_t workers = 2;
  size_t bytes = 100 << 20;
  std::string transport = "LOCAL";
  std::string optimizer = "MOMENTUM";
  std::string wire_dtype = "FP32";
  std::string encryption = "NONE";
  std::string instruction_set = "AUTO";
  uint32_t server_threads = 2;
  uint32_t io_threads = 1;
  int64_t chunk_bytes = 0;
  int64_t rounds = 0;
  bool write = false;
  bool memory = false;
  bool json = false;
};

constexpr const char* kOptimizers = "SGD, MOMENTUM, NESTEROV, ADAM, ADAMW or RMSPROP";
// With the decay, gradients that stay the same do not make the weights grow without end.
constexpr float kRate = 0.125f, kMomentum = 0.5f, kDecay = 0.125f;
constexpr int64_t kWarmUp = 5;

int64_t DefaultRounds(size_t bytes) {
  return std::clamp<int64_t>(static_cast<int64_t>(4e9 / (static_cast<double>(bytes) + 4e5)), 30,
                             8000);
}

config::Config MakeConfig(const Options& options) {
  config::Config config;
  const size_t floats = options.bytes / sizeof(float);
  const auto units = static_cast<uint32_t>(std::max<size_t>(2, floats / 1024));
  config.mutable_run()->set_steps(options.rounds + kWarmUp);
  config.mutable_run()->set_global_batch(options.workers);
  config.mutable_run()->set_slices(options.workers);
  config.mutable_run()->set_log_every_steps(1000000000);
  config.mutable_cluster()->set_workers(options.workers);
  if (options.chunk_bytes > 0 && options.chunk_bytes < 1024) {
    throw Error(ExitCode::kUsage, "--chunk-bytes {}: expected 0, or at least 1024",
                options.chunk_bytes);
  }
  if (options.chunk_bytes > 0) config.mutable_cluster()->set_chunk_bytes(options.chunk_bytes);
  config::Cluster::Transport transport;
  if (!config::Cluster::Transport_Parse(options.transport, &transport) ||
      transport == config::Cluster::AUTO) {
    throw Error(ExitCode::kUsage, "--transport {}: expected LOCAL, IPC or TCP", options.transport);
  }
  config.mutable_cluster()->set_transport(transport);
  config::Cluster::WireDtype wire_dtype;
  if (!config::Cluster::WireDtype_Parse(options.wire_dtype, &wire_dtype)) {
    throw Error(ExitCode::kUsage, "--wire-dtype {}: expected FP32, BF16 or FP16",
                options.wire_dtype);
  }
  if (wire_dtype != config::Cluster::FP32 && transport == config::Cluster::LOCAL) {
    throw Error(ExitCode::kUsage, "--wire-dtype {}: no tensor travels over LOCAL",
                options.wire_dtype);
  }
  config.mutable_cluster()->set_wire_dtype(wire_dtype);
  config::Cluster::Encryption encryption;
  if (!config::Cluster::Encryption_Parse(options.encryption, &encryption)) {
    throw Error(ExitCode::kUsage, "--encryption {}: expected NONE or CURVE", options.encryption);
  }
  config.mutable_cluster()->set_encryption(encryption);
  config.mutable_server()->set_io_threads(options.io_threads);
  config::Server::InstructionSet instruction_set;
  if (!config::Server::InstructionSet_Parse(options.instruction_set, &instruction_set)) {
    throw Error(ExitCode::kUsage, "--instruction-set {}: expected AUTO, SCALAR, AVX2 or AVX512",
                options.instruction_set);
  }
  config.mutable_server()->set_instruction_set(instruction_set);
  config::Optimizer::Type type;
  if (!config::Optimizer::Type_Parse(options.optimizer, &type)) {
    throw Error(ExitCode::kUsage, "--optimizer {}: expected {}", options.optimizer, kOptimizers);
  }
  config.mutable_optimizer()->set_type(type);
  if (type == config::Optimizer::MOMENTUM || type == config::Optimizer::NESTEROV) {
    config.mutable_optimizer()->set_momentum(kMomentum);
  }
  config.mutable_optimizer()->set_weight_decay(kDecay);
  config.mutable_learning_rate()->set_base(kRate);
  config.mutable_evaluation()->set_every_epochs(0);
  config.mutable_evaluation()->set_skip_final(true);
  config.mutable_server()->set_threads(options.server_threads);
  config.mutable_worker()->set_threads(1);
  config.mutable_data()->set_format(config::Data::SYNTHETIC);
  config::SyntheticData& data = *config.mutable_data()->mutable_synthetic();
  data.set_height(1);
  data.set_width(1);
  data.set_channels(static_cast<uint32_t>(std::max<size_t>(1, floats / units)));
  config::Layer& dense = *config.mutable_model()->add_layer();
  dense.set_name("dense");
  dense.mutable_dense()->set_units(units);
  dense.mutable_dense()->set_use_bias(false);
  dense.mutable_dense()->mutable_weights()->mutable_initializer()->set_type(
      config::Initializer::CONSTANT);
  config::Layer& loss = *config.mutable_model()->add_layer();
  loss.set_name("loss");
  loss.mutable_softmax_cross_entropy();
  return config;
}

struct Job {
  Options options;
  config::Config config;
  std::string token;
  std::string endpoint;
};

bool Verify(RoundReference& reference, std::span<const float> weights, int64_t steps) {
  const std::vector<float> expected = reference.WeightsAfter(steps);
  for (size_t i = 0; i < weights.size(); ++i) {
    if (std::bit_cast<uint32_t>(weights[i]) != std::bit_cast<uint32_t>(expected[i % kPattern])) {
      std::fprintf(stderr, "sync_bench: weight %zu is %g, expected %g\n", i, weights[i],
                   expected[i % kPattern]);
      return false;
    }
  }
  return true;
}

// What a worker's arithmetic would do to memory, at memory's speed.
class Traffic {
 public:
  explicit Traffic(uint32_t rank) : rank_(rank), pattern_(kPattern * 16) {}

  // Reads the weights as integers, whose sum the compiler may reorder.
  void Read(std::span<const float> weights) {
    for (const float w : weights) sum_ += std::bit_cast<uint32_t>(w);
  }
  // Writes the gradients of floats [chunk.begin, chunk.end) of round `step`.
  void Write(std::span<float> gradient_buffer, const ChunkRange& chunk, int64_t step) {
    if (step != step_) {
      step_ = step;
      for (size_t i = 0; i < pattern_.size(); ++i) pattern_[i] = GradientAt(i, rank_, step, true);
    }
    for (size_t at = chunk.begin; at < chunk.end;) {
      const size_t from = at % kPattern;
      const size_t count = std::min(chunk.end - at, pattern_.size() - from);
      std::copy_n(pattern_.data() + from, count, gradient_buffer.data() + at);
      at += count;
    }
  }
  uint32_t sum() const { return sum_; }

 private:
  const uint32_t rank_;
  std::vector<float> pattern_;
  int64_t step_ = -1;
  uint32_t sum_ = 0;
};

// Runs one worker; the seconds of each round, or nothing if the weights were wrong.
std::vector<double> Work(const Job& job, uint32_t rank) {
  const Graph graph = BuildGraph(job.config.model(), InputShape(job.config.data()));
  ClientOptions options;
  options.endpoint = job.endpoint;
  options.token = job.token;
  options.rank = rank;
  options.transport = job.config.cluster().transport();
  options.link = LinkOptionsFor(job.config, graph.layout());
  options.link.encrypt = IsEncrypted(job.config.cluster(), job.endpoint);
  options.arena_floats = graph.arena_floats();
  DescribeLayout(graph.layout(), options.hello);
  options.hello.set_train_samples(1 << 20);
  Client client(std::move(options));
  const std::span<float> gradient_buffer = client.GradientBuffer(0);
  for (size_t i = 0; i < gradient_buffer.size(); ++i)
    gradient_buffer[i] = GradientAt(i, rank, 0, job.options.write);
  client.ReportReady();
  std::vector<double> seconds;
  Clock::time_point last = Clock::now();
  RoundReference reference(job.config, job.options.write);
  bool good = true;
  Traffic traffic(rank);
  for (;;) {
    const Order order = client.NextOrder();
    if (order.kind == Order::Kind::kStop) break;
    const bool write = job.options.write && order.version > 0;
    for (size_t c = 0; c < client.chunks().size(); ++c) {
      client.AwaitChunk(order.version, c);
      const auto chunk = client.chunks()[c];
      if (write)
        traffic.Read(client.Weights(order.version).subspan(chunk.begin, chunk.end - chunk.begin));
    }
    const Clock::time_point now = Clock::now();
    seconds.push_back(std::chrono::duration<double>(now - last).count());
    last = now;
    const std::span<const float> weights = client.Weights(order.version);
    if (order.version == 3 || order.version + 1 == job.config.run().steps()) {
      good = good && Verify(reference, weights, order.version);
      last = Clock::now();
    }
    const WorkLease& lease = order.leases.at(0);
    client.ReportLoss(order.version, lease, Covers(lease.node, client.plan().slices).begin, 1, 1.0,
                      0);
    for (size_t c = client.chunks().size(); c-- > 0;) {
      if (write) traffic.Write(gradient_buffer, client.chunks()[c], order.version);
      client.PushChunk(order.version, lease, c);
    }
  }
  volatile uint32_t sum = traffic.sum();  // or the compiler would leave out the reading
  (void)sum;
  return good ? seconds : std::vector<double>();
}

template <typename Body>
pid_t Spawn(const Body& body) {
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child != 0) return child;
  DieWithParent(parent);
  int code = 1;
  try {
    code = body();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "sync_bench: %s\n", error.what());
  }
  std::fflush(nullptr);
  ::_exit(code);
}

void ReadAll(int fd, void* data, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    const ssize_t n = ::read(fd, static_cast<char*>(data) + done, bytes - done);
    if (n <= 0) throw Error(ExitCode::kPeerFailed, "a process of the benchmark failed");
    done += static_cast<size_t>(n);
  }
}

struct Rounds {
  std::vector<double> seconds;  // of each round, as worker 0 saw it
  double memory = 0;            // bytes of server and workers together, with --memory
};

Rounds RunRounds(Job job) {
  int endpoint_pipe[2], result_pipe[2];
  if (::pipe(endpoint_pipe) != 0 || ::pipe(result_pipe) != 0) {
    throw Error(ExitCode::kFailure, "pipe: {}", std::strerror(errno));
  }
  std::vector<pid_t> children{Spawn([&] {
    const Graph graph = BuildGraph(job.config.model(), InputShape(job.config.data()));
    LinkOptions options = LinkOptionsFor(job.config, graph.layout());
    options.token = job.token;
    options.encrypt = IsEncrypted(job.config.cluster(), job.endpoint);
    auto link = Listen(job.endpoint, JobOf(job.token), job.config.cluster().transport(), options);
    char endpoint[256] = {};
    std::strncpy(endpoint, link->endpoint().c_str(), sizeof endpoint - 1);
    (void)!::write(endpoint_pipe[1], endpoint, sizeof endpoint);
    Reporter reporter("", -1);
    Server(job.config, job.token, std::move(link), reporter).Run();
    return 0;
  })};
  ::close(endpoint_pipe[1]);
  char endpoint[256];
  ReadAll(endpoint_pipe[0], endpoint, sizeof endpoint);
  job.endpoint = endpoint;
  for (uint32_t rank = 0; rank < job.options.workers; ++rank) {
    children.push_back(Spawn([&] {
      const std::vector<double> seconds = Work(job, rank);
      if (rank == 0) {
        (void)!::write(result_pipe[1], seconds.data(), seconds.size() * sizeof(double));
      }
      return seconds.empty() ? 1 : 0;
    }));
  }
  ::close(result_pipe[1]);
  std::optional<MemoryWatch> watch;
  if (job.options.memory) watch.emplace(children);
  std::vector<double> seconds(static_cast<size_t>(job.config.run().steps()));
  ReadAll(result_pipe[0], seconds.data(), seconds.size() * sizeof(double));
  const double memory = watch ? watch->Peak() : 0;
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    if (status != 0) throw Error(ExitCode::kPeerFailed, "a process of the benchmark failed");
  }
  seconds.erase(seconds.begin(), seconds.begin() + kWarmUp);
  return {std::move(seconds), memory};
}

Job MakeJob(const Options& options) {
  Job job{.options = options, .config = MakeConfig(options), .token = "", .endpoint = ""};
  std::random_device random;
  for (int i = 0; i < 4; ++i) job.token += fmt::format("{:08x}", random());
  const std::string name = "@muster-bench-" + job.token.substr(0, 16);
  job.endpoint = options.transport == "LOCAL" ? "local://" + name
                 : options.transport == "TCP" ? "tcp://127.0.0.1:*"
                                              : "ipc://" + name;
  return job;
}

// The memory of a job, less that of one next to without a model, against what it must hold: two
// weight buffers of weights, the optimizer's state, and over shared memory one gradient buffer per
// worker.
nlohmann::ordered_json MemoryResult(const Job& job, double memory, double arena, int states) {
  Options small = job.options;
  small.bytes = 4096;
  small.rounds = 30;
  const double programs = RunRounds(MakeJob(small)).memory;
  const double least = arena * (2 + states + job.options.workers);
  return {{"memory_bytes", memory},
          {"memory_of_programs", programs},
          {"memory_least", least},
          {"memory_ratio", (memory - programs) / least}};
}

void Run(Options options) {
  if (options.rounds == 0) options.rounds = DefaultRounds(options.bytes);
  SetLogLevel(LogLevel::kError);
  const Job job = MakeJob(options);
  RoundReference::CheckFormula(job.config, options.write);
  const Graph graph = BuildGraph(job.config.model(), InputShape(job.config.data()));
  const PassShape shape{
      .floats = graph.arena_floats(),
      .gradients = static_cast<int>(options.workers),
      .states = static_cast<int>(
          Optimizer(job.config.optimizer(), *AvailableKernels().back()).state_arenas())};
  // Before and after: the memory of a shared machine changes its speed within seconds.
  const auto limit_now = [&] {
    return MemoryLimitSeconds(shape, static_cast<int>(options.server_threads));
  };
  const double limit_before = limit_now();
  auto [seconds, memory] = RunRounds(job);
  const double limit = std::min(limit_before, limit_now());
  std::sort(seconds.begin(), seconds.end());
  const double p50 = seconds[seconds.size() / 2], p99 = seconds[seconds.size() * 99 / 100];
  nlohmann::ordered_json result{{"workers", options.workers},
                                {"bytes", graph.arena_floats() * sizeof(float)},
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
    result.update(MemoryResult(
        job, memory, static_cast<double>(graph.arena_floats() * sizeof(float)), shape.states));
  }
  if (options.json) {
    std::printf("%s\n", result.dump().c_str());
    return;
  }
  fmt::print(
      "{} workers, {} bytes, {}, {}{}: verified\n"
      "round  p50 {:.1f} us   p99 {:.1f} us   ({} rounds)\n"
      "update {:.1f} GB/s of memory traffic; the memory alone: {:.1f} us, {:.1f} GB/s; ratio "
      "{:.2f}\n",
      options.workers, graph.arena_floats() * sizeof(float), options.transport, options.optimizer,
      options.write ? ", workers write and read" : "", p50 * 1e6, p99 * 1e6, seconds.size(),
      UpdateBytes(shape) / p50 / 1e9, limit * 1e6, UpdateBytes(shape) / limit / 1e9, limit / p50);
  if (options.memory) {
    fmt::print(
        "memory {:.1f} MB, {:.1f} MB of it the programs'; the rest is {:.3f} x what it must hold\n",
        memory / 1e6, result["memory_of_programs"].get<double>() / 1e6,
        result["memory_ratio"].get<double>());
  }
}

}  // namespace
}  // namespace muster::bench

int main(int argc, char** argv) {
  muster::KeepFreedMemory();  // as server and worker do
  using muster::bench::kOptimizers;
  muster::bench::Options options;
  muster::ProgramOptions program(
      "Times a round of push, average, update and pull between real processes.");
  program.Add("--workers", options.workers).ShowDefault().InRange(1, 64);
  program
      .Add("--size", options.bytes,
           "bytes of weights, 4096 to 4294967296; also 4KiB, 100MiB (2^20), 400MB (10^6), 4GiB")
      .ShowDefault()
      .AsBytes()
      .InRange(4096, int64_t{1} << 32);
  program.Add("--transport", options.transport, "LOCAL, IPC or TCP").ShowDefault();
  program.Add("--optimizer", options.optimizer, kOptimizers).ShowDefault();
  program.Add("--wire-dtype", options.wire_dtype, "FP32, BF16 or FP16; not with LOCAL")
      .ShowDefault();
  program.Add("--encryption", options.encryption, "NONE or CURVE; over TCP").ShowDefault();
  program.Add("--instruction-set", options.instruction_set, "as server.instruction_set")
      .ShowDefault();
  program.Add("--io-threads", options.io_threads, "of the server's ZeroMQ link").ShowDefault();
  program.Add("--server-threads", options.server_threads).ShowDefault();
  program
      .Add("--chunk-bytes", options.chunk_bytes,
           "1024 to 67108864, also 64KiB; 0: as cluster.chunk_bytes")
      .AsBytes()
      .InRange(0, 64 << 20);
  program.Add("--rounds", options.rounds, "0: by size").InRange(0, 1000000);
  program.AddFlag("--write", options.write,
                  "workers also write their gradients and read the weights, chunk by chunk");
  program.AddFlag("--memory", options.memory,
                  "also measure the memory of server and workers, shared pages counted once");
  program.AddFlag("--json", options.json, "one JSON object");
  if (const auto exit_code = program.Parse(argc, argv)) return *exit_code;
  try {
    muster::bench::Run(options);
    return 0;
  } catch (const muster::Error& error) {
    std::fprintf(stderr, "sync_bench: error: %s\n", error.what());
    return static_cast<int>(error.code());
  }
}
