// A correct worker's replies to the server's messages, in order. A target sends them, or deviates.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "common/plan/slices.h"
#include "common/plan/step_plan.h"
#include "proto/config.pb.h"
#include "proto/wire.pb.h"

namespace muster::fuzz {

// A job of two small layers with a few chunks of weights, so that messages dominate the time, not
// arithmetic.
config::Config BookConfig(uint32_t workers, uint32_t slices);

class BookWorker {
 public:
  BookWorker(const config::Config& config, uint32_t rank);

  wire::WorkerMessage Hello() const;
  // Handles an order. Its replies follow those that are already queued.
  void Hear(const wire::ServerMessage& message);
  // The next reply, or a heartbeat. It carries the address of the server's last message.
  wire::WorkerMessage Next();
  // Replies about a step wait until all of its weights have arrived.
  bool has_lines() const;
  // Sets the address that the server expects.
  void Address(wire::WorkerMessage& message) const { *message.mutable_address() = address_; }

  // The gradient of each element of the message's chunk, summed over its subtree. Empty if there is
  // none, or if it holds no samples.
  std::vector<float> GradientOf(const wire::GradientPart& part) const;

 private:
  void Compute(int64_t step, uint64_t order, uint32_t buffer, const TreeNode& node,
               const std::vector<uint32_t>& chunks);
  void Evaluate(const wire::Evaluate& evaluate);
  bool HasSamples(int64_t step, const TreeNode& node) const;

  const config::Config& config_;
  const uint32_t rank_;
  wire::Address address_;
  std::deque<wire::WorkerMessage> lines_;
  std::map<int64_t, size_t> arrived_;  // version → chunks of its weights
  StepPlan plan_;
  std::vector<uint64_t> chunk_end_;
};

}  // namespace muster::fuzz
