// What a good worker answers to what the server sends it: its lines, one after the other. A target
// says them, or something else.
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

// A job of two small layers, whose weights are some chunks: most of the time goes into what the
// peers say, and not into arithmetic.
config::Config BookConfig(uint32_t workers, uint32_t slices);

class BookWorker {
 public:
  BookWorker(const config::Config& config, uint32_t rank);

  wire::WorkerMessage Hello() const;
  // Takes an order in; what follows from it comes after what was to be said before.
  void Hear(const wire::ServerMessage& message);
  // The next line, or a Beat. What it is addressed to is what the server said last.
  wire::WorkerMessage Next();
  // What is about a step comes when all of its weights are here.
  bool has_lines() const;
  // As the server has it.
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
