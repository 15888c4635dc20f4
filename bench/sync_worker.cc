#include "bench/sync_worker.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdio>
#include <memory>
#include <span>
#include <utility>

#include "bench/round_reference.h"
#include "common/config/build_graph.h"
#include "common/config/config.h"
#include "common/config/data_format.h"
#include "common/link/protocol.h"
#include "common/link/tcp_address.h"
#include "common/transport/link_options.h"
#include "worker/client/client.h"
#include "worker/client/terms.h"

namespace muster::bench {
namespace {

using Clock = std::chrono::steady_clock;

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

// Produces the memory traffic of a worker's computation.
class Traffic {
 public:
  explicit Traffic(uint32_t rank) : rank_(rank), pattern_(kPattern * 16) {}

  // Reads the weights as integers, so that the compiler may reorder the sum.
  void Read(std::span<const float> weights) {
    for (const float w : weights) sum_ += std::bit_cast<uint32_t>(w);
  }
  // Writes the gradients of floats [chunk.begin, chunk.end) for round `step`.
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

std::unique_ptr<Client> Join(const SyncJob& job, uint32_t rank) {
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
  return std::make_unique<Client>(std::move(options));
}

}  // namespace

std::vector<double> WorkInRounds(const SyncJob& job, uint32_t rank) {
  const std::unique_ptr<Client> joined = Join(job, rank);
  Client& client = *joined;
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
    const OrderPart& part = order.parts.at(0);
    client.ReportLoss(order.version, part, Covers(part.node, client.plan().slices).begin, 1, 1.0,
                      0);
    for (size_t c = client.chunks().size(); c-- > 0;) {
      if (write) traffic.Write(gradient_buffer, client.chunks()[c], order.version);
      client.PushChunk(order.version, part, c);
    }
  }
  volatile uint32_t sum = traffic.sum();  // keeps the compiler from removing the reads
  (void)sum;
  return good ? seconds : std::vector<double>();
}

}  // namespace muster::bench
