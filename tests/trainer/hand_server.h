// The test acts as the server: one real worker joins over a real link and gets orders by hand, even
// such as no server sends in a good run.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/log.h"
#include "common/base/shared_memory.h"
#include "common/config/build_graph.h"
#include "common/config/config.h"
#include "common/config/data_format.h"
#include "common/config/job_size.h"
#include "common/link/protocol.h"
#include "common/link/wire_values.h"
#include "common/transport/transport.h"
#include "tests/backend/threaded_backend.h"
#include "tests/data/test_sets.h"
#include "tests/job/test_job.h"
#include "worker/backend/cpu/cpu_backend.h"
#include "worker/trainer/trainer.h"

namespace muster::testing {

class HandServer {
 public:
  static constexpr int64_t kTestSamples = 25;
  static constexpr uint32_t kBlock = 10;

  struct Options {
    const char* transport = "local";
    bool threaded_backend = false;
    std::vector<TreeNode> nodes{{0, 0}};
    int64_t first_step = 0;
    std::chrono::milliseconds read_time{};  // of a sample
    double step_s = 60;
  };

  explicit HandServer(const Options& options)
      : options_(options),
        config_(Config(options)),
        graph_(BuildGraph(config_.model(), InputShape(config_.data()))),
        chunks_(CutChunks(graph_.layout(), config_.cluster())),
        shared_weights_(SharedMemory::Create(
            "test-weights", 2 * SharedArenaFloats(graph_.arena_floats()) * sizeof(float),
            SharedMemory::Access::kReadWrite)) {
    SetLogLevel(LogLevel::kError);
    std::random_device random;
    const std::string name = fmt::format("muster-test-{}-{:08x}", ::getpid(), random());
    const auto terms = WorkerOptions(config_, "", 0, kTestSamples);
    link_ = Listen(std::string(options.transport) + "://@" + name, JobOf(TestToken()),
                   config_.cluster().transport(), terms.link);
    link_->ShareWeights(shared_weights_);
    worker_ = std::async(std::launch::async, [this] { return RunWorker(); });
    Await([this] { return peer_.has_value(); });
    if (peer_) Welcome();
    Await([this] { return ready_ == std::optional(0u); });
  }
  ~HandServer() {
    if (!worker_.valid()) return;
    Stop();
  }

  const std::vector<Chunk>& chunks() const { return chunks_; }

  // Sends a message to the worker.
  void Send(wire::ServerMessage message, std::span<const std::byte> tensor = {},
            std::optional<uint32_t> incarnation = std::nullopt) {
    message.mutable_address()->set_job(JobOf(TestToken()));
    message.mutable_address()->set_rank(0);
    message.mutable_address()->set_incarnation(incarnation.value_or(incarnation_));
    EXPECT_EQ(link_->Send(*peer_, message, {tensor, UrgencyOf(message.weights_chunk())}),
              SendResult::kQueued);
    link_->Deliver();
  }
  // Orders the worker's initial nodes, or others.
  void Train(int64_t step, uint64_t order) { Train(step, order, options_.nodes); }
  void Train(int64_t step, uint64_t order, const std::vector<TreeNode>& nodes) {
    wire::ServerMessage message;
    wire::Train& train = *message.mutable_train();
    train.set_order(order);
    train.set_step(step);
    train.set_samples(16);
    for (const TreeNode& node : nodes) *train.add_subtree() = SubtreeOf(node);
    Send(message);
  }
  // Sends an urgent order, to take over another worker's slices.
  void TakeOver(int64_t step, uint64_t order, const TreeNode& node, std::vector<uint32_t> chunks) {
    wire::ServerMessage message;
    wire::Train& train = *message.mutable_train();
    train.set_order(order);
    train.set_step(step);
    train.set_samples(16);
    *train.add_subtree() = SubtreeOf(node);
    train.set_buffer(static_cast<uint32_t>(options_.nodes.size()));
    train.mutable_chunk()->Assign(chunks.begin(), chunks.end());
    train.set_urgent(true);
    Send(message);
  }
  void Evaluate(int64_t version) {
    wire::ServerMessage message;
    wire::Evaluate& evaluate = *message.mutable_evaluate();
    evaluate.set_version(version);
    evaluate.set_block_size(kBlock);
    evaluate.set_block_begin(0);
    evaluate.set_block_end((kTestSamples + kBlock - 1) / kBlock);
    Send(message);
  }
  void Activate(int64_t version) {
    wire::ServerMessage message;
    message.mutable_activate()->set_version(version);
    Send(message);
  }
  void Reset() {
    wire::ServerMessage message;
    message.mutable_reset()->set_incarnation(incarnation_ + 1);
    Send(message);
    ++incarnation_;
  }
  // Sends synthetic weights that differ in each version.
  void SendChunk(int64_t version, uint32_t chunk,
                 std::optional<uint32_t> incarnation = std::nullopt) {
    const Chunk& range = chunks_[chunk];
    std::vector<float>& values = sent_.emplace_back(range.floats());
    for (size_t i = 0; i < values.size(); ++i) values[i] = 0.1f * Rough(100 + version, 0, i) / 64;
    std::ranges::copy(
        values, shared_weights_.writable_floats().begin() +
                    static_cast<ptrdiff_t>(
                        (version % 2) * SharedArenaFloats(graph_.arena_floats()) + range.begin));
    wire::ServerMessage message;
    message.mutable_weights_chunk()->set_version(version);
    message.mutable_weights_chunk()->set_chunk(chunk);
    Send(message, std::as_bytes(std::span<const float>(values)), incarnation);
  }
  void SendWeights(int64_t version, std::optional<uint32_t> but = std::nullopt) {
    for (uint32_t c = 0; c < chunks_.size(); ++c) {
      if (c != but) SendChunk(version, c);
    }
  }

  // The results for an order.
  struct Came {
    std::map<int64_t, double> losses;  // by slice
    std::map<uint32_t, std::vector<float>> parts;
    friend bool operator==(const Came&, const Came&) = default;
  };
  const Came& Await(uint64_t order, size_t parts) {
    Await([&] { return work_[order].parts.size() >= parts; });
    return work_[order];
  }
  const Came& AwaitAll(uint64_t order) { return Await(order, chunks_.size()); }
  // Returns the loss of each block.
  const std::map<uint32_t, double>& AwaitBlocks() {
    Await([this] { return blocks_.size() * kBlock >= kTestSamples; });
    return blocks_;
  }
  void AwaitReady(uint32_t incarnation) {
    Await([&] { return ready_ == std::optional(incarnation); });
  }
  size_t orders() const { return work_.size(); }
  // Makes the worker want to leave, as after a signal.
  void AskToLeave() { wants_to_leave_ = true; }
  // Waits for the worker's request to leave, sent with this incarnation.
  void AwaitLeave(uint32_t incarnation) {
    Await([&] { return leave_ == std::optional(incarnation); });
  }

  // Stops the worker and returns its error, or "".
  std::string Stop() {
    wire::ServerMessage message;
    message.mutable_stop()->set_completed(true);
    Send(message);
    return End();
  }
  std::string End() {
    Await([this] {
      return worker_.wait_for(std::chrono::milliseconds(1)) == std::future_status::ready;
    });
    return worker_.get();
  }

 private:
  static config::Config Config(const Options& options) {
    config::Config config = SmallConfig(2, 2);
    for (config::Layer& layer : *config.mutable_model()->mutable_layer()) {
      if (layer.has_dense()) layer.mutable_dense()->clear_weights();
    }
    config.mutable_evaluation()->set_batch(kBlock);
    config.mutable_deadlines()->set_step_s(options.step_s);
    return config;
  }

  std::string RunWorker() {
    try {
      auto train = std::make_unique<MemorySet>(TestJob::kSamples, Shape{1, 1, 3});
      train->on_read = [this](int64_t) { std::this_thread::sleep_for(options_.read_time); };
      const Datasets data{std::move(train),
                          std::make_unique<MemorySet>(kTestSamples, Shape{1, 1, 3}, 2)};
      ClientOptions terms = WorkerOptions(config_, link_->endpoint(), 0, kTestSamples);
      terms.rank.reset();  // the server knows it
      terms.leave = &wants_to_leave_;
      Client client(std::move(terms));
      const std::unique_ptr<Backend> cpu = MakeCpuBackend(1);
      ThreadedBackend threaded({.delays = {200, 200, 200}});
      Backend& backend = options_.threaded_backend ? static_cast<Backend&>(threaded) : *cpu;
      Trainer(config_, graph_, data, backend, client).Run();
      return "";
    } catch (const std::exception& error) {
      return error.what();
    }
  }

  void Welcome() {
    wire::ServerMessage message;
    wire::Welcome& welcome = *message.mutable_welcome();
    for (const Chunk& chunk : chunks_) welcome.add_chunk_end(chunk.end);
    welcome.set_train_samples(TestJob::kSamples);
    welcome.set_global_batch(16);
    welcome.set_total_steps(100);
    welcome.set_slices(2);
    for (const TreeNode& node : options_.nodes) *welcome.add_subtree() = SubtreeOf(node);
    welcome.set_first_step(options_.first_step);
    welcome.set_buffers(static_cast<uint32_t>(options_.nodes.size() + 1));
    link_->ShareGradients(*peer_, GradientLayoutOf(welcome));
    Send(message);
    Activate(options_.first_step);
    SendWeights(options_.first_step);
  }

  template <typename Done>
  void Await(const Done& done) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!done()) {
      if (std::chrono::steady_clock::now() > deadline) {
        ADD_FAILURE() << "it did not happen within 20 s";
        return;
      }
      (void)link_->PrepareToSleep();
      if (const auto event = link_->Receive()) {
        Handle(*event);
      } else {
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      }
    }
  }

  void Handle(const FromWorker& event) {
    const wire::WorkerMessage& message = event.message;
    if (message.has_hello()) {
      EXPECT_FALSE(message.hello().has_rank());
      peer_ = event.peer;
    } else if (message.has_ready()) {
      ready_ = message.address().incarnation();
    } else if (message.has_leave()) {
      leave_ = message.address().incarnation();
    } else if (message.has_slice_loss()) {
      const wire::SliceLoss& loss = message.slice_loss();
      EXPECT_TRUE(work_[loss.order()].losses.emplace(loss.slice(), loss.loss()).second);
    } else if (message.has_gradient_part()) {
      const wire::GradientPart& part = message.gradient_part();
      EXPECT_FALSE(work_[part.order()].losses.empty()) << "a gradient before its loss";
      std::vector<float> values(event.payload.floats().begin(), event.payload.floats().end());
      EXPECT_EQ(values.size(), chunks_.at(part.chunk()).floats());
      EXPECT_TRUE(work_[part.order()].parts.emplace(part.chunk(), std::move(values)).second);
    } else if (message.has_evaluated_block()) {
      const wire::EvaluatedBlock& block = message.evaluated_block();
      EXPECT_TRUE(blocks_.emplace(block.block(), block.loss()).second);
    }
  }

  const Options options_;
  const config::Config config_;
  const Graph graph_;
  const std::vector<Chunk> chunks_;
  SharedMemory shared_weights_;
  std::deque<std::vector<float>> sent_;  // stays in place until the end
  std::unique_ptr<ServerLink> link_;
  std::optional<PeerId> peer_;
  uint32_t incarnation_ = 0;
  std::optional<uint32_t> ready_, leave_;  // with this incarnation
  std::atomic<bool> wants_to_leave_ = false;
  std::map<uint64_t, Came> work_;
  std::map<uint32_t, double> blocks_;
  std::future<std::string> worker_;
};

}  // namespace muster::testing
