// A server without its loop and link: the run and its members. The test acts as the workers. It
// records all messages to them and makes all calls for messages from them.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/log.h"
#include "common/checkpoint/list_checkpoints.h"
#include "common/config/build_graph.h"
#include "common/config/config.h"
#include "common/config/data_format.h"
#include "common/config/job_size.h"
#include "common/link/protocol.h"
#include "common/link/wire_values.h"
#include "ps/record/resume.h"
#include "ps/run/run.h"
#include "tests/job/test_job.h"
#include "tests/ps/tree_sum_reference.h"

namespace muster::testing {

class HandRun {
 public:
  // If run.dir has checkpoints, resumes from the newest one. The messages of ranks below `relayed`
  // come through a relay.
  explicit HandRun(config::Config config, int64_t test_samples = 0, int64_t validation_samples = 0,
                   uint32_t relayed = 0)
      : config_(std::move(config)),
        graph_(BuildGraph(config_.model(), InputShape(config_.data()))),
        resume_(ListCheckpoints(config_.run().dir()).empty()
                    ? std::nullopt
                    : std::optional(FindResumePoint(config_))),
        recorder_(config_, graph_, -1, resume_ ? &resume_->state() : nullptr),
        members_(graph_.layout(),
                 {TestToken(), JobOf(TestToken()), config_.cluster().workers(), {}}, recorder_),
        run_(config_, graph_, members_, recorder_, failure_, Now(), resume_ ? &*resume_ : nullptr) {
    SetLogLevel(LogLevel::kError);
    for (uint32_t rank = 0; rank < config_.cluster().workers(); ++rank) {
      wire::WorkerMessage message;
      *message.mutable_hello() = WorkerOptions(config_, "", rank, test_samples).hello;
      message.mutable_hello()->set_validation_samples(validation_samples);
      message.mutable_hello()->set_token(TestToken());
      message.mutable_hello()->set_protocol_version(kProtocolVersion);
      message.mutable_hello()->set_rank(rank);
      const PeerId connection = rank < relayed ? 0 : rank + 1;
      (void)members_.OnHello(rank + 1, connection, message.hello(), false, Now());
    }
    run_.BeginIfComplete(Now());
    for (uint32_t rank = 0; rank < config_.cluster().workers(); ++rank) Ready(rank);
  }

  static Run::Time Now() { return std::chrono::steady_clock::now(); }
  Run& run() { return run_; }
  const Checkpoints& checkpoints() { return run_.parts().keeper.checkpoints; }
  int64_t step() const { return run_.parts().state.step; }
  std::string failure() const { return failure_.is_set() ? failure_.get()->what : ""; }
  size_t chunks() const { return CutChunks(graph_.layout(), config_.cluster()).size(); }

  void Ready(uint32_t rank) { (void)run_.OnReady(rank, {}, Now()); }

  // Takes the first pending message of this kind to a rank. Empty if there is none.
  template <typename Is>
  std::optional<wire::ServerMessage> Next(uint32_t rank, const Is& is) {
    TakeOutgoing();
    std::deque<wire::ServerMessage>& inbox = sent_[rank + 1];
    const auto found = std::ranges::find_if(inbox, is);
    if (found == inbox.end()) return std::nullopt;
    wire::ServerMessage message = std::move(*found);
    inbox.erase(found);
    return message;
  }
  // The kinds of all pending messages, except weights.
  std::vector<wire::ServerMessage::BodyCase> Kinds(uint32_t rank) {
    TakeOutgoing();
    std::vector<wire::ServerMessage::BodyCase> kinds;
    const auto found = sent_.find(rank + 1);
    if (found == sent_.end()) return kinds;
    for (const wire::ServerMessage& message : found->second) {
      if (!message.has_weights_chunk()) kinds.push_back(message.body_case());
    }
    return kinds;
  }

  // One part of an order to train.
  struct Task {
    uint64_t order = 0;
    int64_t step = 0;
    TreeNode node;
    uint32_t buffer = 0;
    std::vector<uint32_t> chunks;  // to be pushed
  };
  // Takes the next order to train and returns its parts. `urgent`: the next urgent order.
  std::vector<Task> Train(uint32_t rank, bool urgent = false) {
    const auto message =
        Next(rank, [&](const auto& m) { return m.has_train() && m.train().urgent() == urgent; });
    if (!message) return {};
    const wire::Train& train = message->train();
    std::vector<Task> tasks;
    for (const wire::Subtree& subtree : train.subtree()) {
      const auto i = static_cast<uint32_t>(tasks.size());
      tasks.push_back({train.order(),
                       train.step(),
                       NodeOf(subtree),
                       train.buffer() + i,
                       {train.chunk().begin(), train.chunk().end()}});
      if (tasks.back().chunks.empty()) tasks.back().chunks = All();
    }
    return tasks;
  }
  std::vector<uint32_t> All() const {
    std::vector<uint32_t> all(chunks());
    for (uint32_t c = 0; c < all.size(); ++c) all[c] = c;
    return all;
  }

  // Reports a loss. Returns the server's reason for rejecting it, or "".
  std::string Loss(uint32_t rank, const Task& task, int64_t slice, double loss = 1) {
    wire::SliceLoss message;
    message.set_step(task.step);
    message.set_slice(static_cast<uint32_t>(slice));
    message.set_samples(SamplesOf(task.step, slice));
    message.set_loss(loss);
    message.set_order(task.order);
    return run_.OnSliceLoss(rank, message, Now());
  }
  void Losses(uint32_t rank, const Task& task) {
    const Range slices = Covers(task.node, config_.run().slices());
    for (int64_t s = slices.begin; s < slices.end; ++s) EXPECT_EQ(Loss(rank, task, s), "");
    Settle();
  }
  std::string Push(uint32_t rank, const Task& task, uint32_t chunk) {
    wire::GradientPart part = Part(task, chunk);
    part.set_order(task.order);
    part.set_buffer(task.buffer);
    return Push(rank, part);
  }
  // Pushes what a relay has added up. `node` covers the same slices. Each task is of one rank.
  std::string PushSum(const TreeNode& node, const std::vector<std::pair<uint32_t, Task>>& tasks,
                      uint32_t chunk) {
    const auto& [first_rank, first] = tasks.at(0);
    wire::GradientPart sum = Part({.step = first.step, .node = node, .chunks = {}}, chunk);
    for (const auto& [rank, task] : tasks) {
      wire::AddedPart& added = *sum.add_added();
      added.set_rank(rank);
      added.set_order(task.order);
      *added.mutable_subtree() = SubtreeOf(task.node);
      added.set_buffer(task.buffer);
    }
    return Push(first_rank, sum);
  }
  void PushAll(uint32_t rank, const Task& task) {
    for (const uint32_t chunk : task.chunks) EXPECT_EQ(Push(rank, task, chunk), "");
  }
  // Completes an undisturbed step.
  void WholeStep() {
    std::vector<std::pair<uint32_t, Task>> tasks;
    for (uint32_t rank = 0; rank < config_.cluster().workers(); ++rank) {
      for (const Task& task : Train(rank)) tasks.emplace_back(rank, task);
    }
    for (const auto& [rank, task] : tasks) Losses(rank, task);
    for (const auto& [rank, task] : tasks) PushAll(rank, task);
  }

  // Updates are immediate, because the chunks are small.
  void Settle() { run_.Advance(true, Now()); }

 private:
  static wire::GradientPart Part(const Task& task, uint32_t chunk) {
    wire::GradientPart part;
    part.set_step(task.step);
    part.set_chunk(chunk);
    *part.mutable_subtree() = SubtreeOf(task.node);
    return part;
  }
  std::string Push(uint32_t rank, const wire::GradientPart& part) {
    const auto type = WireTypeOf(config_.cluster());
    const Chunk range = CutChunks(graph_.layout(), config_.cluster())[part.chunk()];
    auto bytes = std::make_shared<std::vector<std::byte>>(range.floats() * BytesOf(type));
    std::vector<float> values(range.floats());
    for (size_t i = 0; i < values.size(); ++i) {
      bool any;
      values[i] = TreeSumOf([&](int64_t s) { return Rough(part.step(), s, range.begin + i); },
                            NodeOf(part.subtree()), config_.run().slices(),
                            [](int64_t) { return false; }, &any, type);
    }
    if (type == wire::FP32) {
      std::memcpy(bytes->data(), values.data(), bytes->size());
    } else {
      (void)Narrow(type, values, reinterpret_cast<uint16_t*>(bytes->data()));
    }
    const std::string why = run_.OnGradient(
        rank, part, {.data = bytes->data(), .bytes = bytes->size(), .owner = bytes}, Now());
    Settle();
    return why;
  }
  void TakeOutgoing() {
    std::vector<ToWorker> messages;
    members_.TakeOutgoing(messages);
    for (ToWorker& one : messages) sent_[one.peer].push_back(one.Addressed());
  }
  int64_t SamplesOf(int64_t step, int64_t slice) const {
    const StepPlan plan{.train_samples = TestJob::kSamples,
                        .global_batch = config_.run().global_batch(),
                        .total_steps = config_.run().steps(),
                        .slices = config_.run().slices()};
    return plan.Slice(plan.At(step), slice).size();
  }

  const config::Config config_;
  const Graph graph_;
  const std::optional<ResumePoint> resume_;
  Recorder recorder_;
  FirstFailure failure_;
  std::map<PeerId, std::deque<wire::ServerMessage>> sent_;
  Membership members_;
  Run run_;
};

}  // namespace muster::testing
