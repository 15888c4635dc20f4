// The sums of a host, with orders and gradients made by hand. Checks all that is sent and names it:
// "1.0" is a worker's gradient of subtree 1.0, "2.0 = 1.0 + 1.1" is a sum.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/link/wire_values.h"
#include "tests/ps/tree_sum_reference.h"
#include "worker/relay/host_sums.h"

namespace muster::testing {

class HandSums {
 public:
  using Names = std::vector<std::string>;

  // `empty`: the slices without samples. `gpus`: see HostSums.
  explicit HandSums(int64_t slices, Range empty = {}, const GpuGradients* gpus = nullptr)
      : slices_(slices), empty_(empty), sums_(slices, wire::FP32, gpus) {}

  // ------------------------------------------------------------------------------ making messages

  // Makes the next order of the worker `via`.
  wire::Train Train(uint32_t via, const std::vector<TreeNode>& nodes, int64_t step = 0) {
    wire::Train train;
    train.set_order(++orders_);
    train.set_step(step);
    train.set_buffer(via);
    for (const TreeNode& node : nodes) *train.add_subtree() = SubtreeOf(node);
    return train;
  }
  void Give(uint32_t via, const wire::Train& train) {
    given_.push_back({via, train});
    sums_.Ordered(via, via + 10, train);
  }
  void Give(uint32_t via, const std::vector<TreeNode>& nodes, int64_t step = 0) {
    Give(via, Train(via, nodes, step));
  }
  // Makes a gradient under the worker's newest order that asks for it.
  RelayedGradient Gradient(uint32_t via, const TreeNode& node, uint32_t chunk = 0,
                           int64_t step = 0) const {
    RelayedGradient gradient = Part(node, chunk, step);
    SetSender(gradient.message, via);
    for (const auto& [to, train] : given_) {
      if (to != via || train.step() != step) continue;
      const auto nodes = NodesOf(train.subtree());
      const auto at = std::ranges::find(nodes, node);
      if (at == nodes.end()) continue;
      wire::GradientPart& part = *gradient.message.mutable_gradient_part();
      part.set_order(train.order());
      part.set_buffer(train.buffer() + static_cast<uint32_t>(at - nodes.begin()));
    }
    return gradient;
  }
  // Makes another relay's sum of these gradients.
  RelayedGradient Sum(const TreeNode& node, const std::vector<RelayedGradient>& gradients) const {
    const wire::WorkerMessage& first = gradients.at(0).message;
    RelayedGradient sum = Part(node, first.gradient_part().chunk(), first.gradient_part().step());
    *sum.message.mutable_address() = first.address();
    sum.message.set_via(first.via());
    for (const RelayedGradient& gradient : gradients) {
      const wire::GradientPart& part = gradient.message.gradient_part();
      wire::AddedPart& added = *sum.message.mutable_gradient_part()->add_added();
      added.set_rank(gradient.message.address().rank());
      added.set_order(part.order());
      *added.mutable_subtree() = part.subtree();
      added.set_buffer(part.buffer());
    }
    return sum;
  }

  // ------------------------------------------------------------------------------ what is sent

  Names Add(RelayedGradient gradient) {
    arrived_.push_back(Unmarked(gradient.message));
    return Sent(sums_.Add(std::move(gradient), now_));
  }
  Names Add(uint32_t via, const TreeNode& node, uint32_t chunk = 0, int64_t step = 0) {
    return Add(Gradient(via, node, chunk, step));
  }
  Names TakeLate() {
    std::vector<RelayedGradient> late = sums_.TakeLate(now_);
    for (const RelayedGradient& one : late) EXPECT_TRUE(one.message.gradient_part().late());
    return Sent(std::move(late));
  }
  Names Close(uint32_t via) { return Sent(sums_.Close(via)); }
  void Forget(int64_t step, uint32_t chunk) { sums_.Forget(step, chunk); }
  void Advance(std::chrono::milliseconds time) { now_ += time; }

  HostSums& sums() { return sums_; }
  // The newest message that was sent.
  const RelayedGradient& last() const { return last_; }

 private:
  struct Given {
    uint32_t via = 0;
    wire::Train train;
  };

  // The first value's sum depends on the order of the additions; the second one is exact.
  static float ValueOf(int64_t slice, size_t i, uint32_t chunk, int64_t step) {
    constexpr std::array<float, 9> kRough{1e8F, 1, -1e8F, 3, 1e8F, 5, 0.1F, -1e8F, 7};
    if (i == 0) return kRough.at(static_cast<size_t>(slice) % kRough.size());
    return static_cast<float>(slice + 16 * chunk + 256 * step);
  }
  std::vector<float> ValuesOf(const TreeNode& node, uint32_t chunk, int64_t step) const {
    std::vector<float> values;
    bool any = true;
    for (size_t i = 0; i < 2 && any; ++i) {
      const float value = TreeSumOf(
          [&](int64_t slice) { return ValueOf(slice, i, chunk, step); }, node, slices_,
          [&](int64_t slice) { return slice >= empty_.begin && slice < empty_.end; }, &any);
      if (any) values.push_back(value);
    }
    return values;
  }
  RelayedGradient Part(const TreeNode& node, uint32_t chunk, int64_t step) const {
    RelayedGradient gradient;
    wire::GradientPart& part = *gradient.message.mutable_gradient_part();
    part.set_step(step);
    part.set_chunk(chunk);
    *part.mutable_subtree() = SubtreeOf(node);
    const auto values = std::make_shared<std::vector<float>>(ValuesOf(node, chunk, step));
    if (values->empty()) {
      part.set_empty(true);
    } else {
      gradient.payload = {values->data(), values->size() * sizeof(float), values};
    }
    return gradient;
  }
  // Workers' ranks differ from their numbers.
  static void SetSender(wire::WorkerMessage& message, uint32_t via) {
    message.mutable_address()->set_job(77);
    message.mutable_address()->set_rank(via + 10);
    message.mutable_address()->set_incarnation(via + 20);
    message.set_via(via);
  }
  static std::string NameOf(const wire::Subtree& node) {
    return std::to_string(node.level()) + "." + std::to_string(node.index());
  }
  static std::vector<uint32_t> BitsOf(std::span<const float> values) {
    std::vector<uint32_t> bits;
    for (const float value : values) bits.push_back(std::bit_cast<uint32_t>(value));
    return bits;
  }

  Names Sent(std::vector<RelayedGradient> gradients) {
    Names names;
    for (RelayedGradient& gradient : gradients) {
      names.push_back(Check(gradient));
      last_ = std::move(gradient);
    }
    return names;
  }
  // The message as it came: a relay changes nothing of it but the mark.
  static std::string Unmarked(wire::WorkerMessage message) {
    message.mutable_gradient_part()->clear_late();
    return message.SerializeAsString();
  }
  std::string Check(const RelayedGradient& gradient) const {
    const wire::GradientPart& part = gradient.message.gradient_part();
    std::string name = NameOf(part.subtree());
    const std::vector<float> values = ValuesOf(NodeOf(part.subtree()), part.chunk(), part.step());
    EXPECT_EQ(BitsOf(gradient.payload.floats()), BitsOf(values)) << name;
    EXPECT_EQ(gradient.payload.bytes, values.size() * sizeof(float)) << name;
    EXPECT_EQ(part.empty(), values.empty()) << name;
    if (part.added_size() == 0) {
      EXPECT_THAT(arrived_, ::testing::Contains(Unmarked(gradient.message))) << name;
    } else {
      name += " =" + CheckAdded(gradient.message);
    }
    return part.chunk() == 0 ? name : name + " of chunk " + std::to_string(part.chunk());
  }
  // The message must be the one that another relay would make of the same gradients.
  std::string CheckAdded(const wire::WorkerMessage& message) const {
    const wire::GradientPart& part = message.gradient_part();
    std::string name;
    std::vector<RelayedGradient> gradients;
    for (const wire::AddedPart& added : part.added()) {
      name += (name.empty() ? " " : " + ") + NameOf(added.subtree());
      const auto given = std::ranges::find(given_, added.order(),
                                           [](const Given& one) { return one.train.order(); });
      if (given == given_.end()) return name + " of an unknown order";
      gradients.push_back(Gradient(given->via, NodeOf(added.subtree()), part.chunk(), part.step()));
    }
    EXPECT_EQ(Unmarked(message), Unmarked(Sum(NodeOf(part.subtree()), gradients).message));
    return name;
  }

  const int64_t slices_;
  const Range empty_;
  HostSums sums_;
  HostSums::Time now_ = HostSums::Time() + std::chrono::hours(1);
  uint64_t orders_ = 100;
  std::vector<Given> given_;
  std::vector<std::string> arrived_;  // all messages
  RelayedGradient last_;
};

}  // namespace muster::testing
