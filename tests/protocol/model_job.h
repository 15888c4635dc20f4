// The job that is modelled: two chunks, a few slices and steps, and what every message of it must
// hold, in closed form. Gradients are such that the weights tell which slices are in them.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "common/graph/graph.h"
#include "common/plan/chunks.h"
#include "common/plan/slices.h"
#include "common/plan/step_plan.h"
#include "proto/config.pb.h"
#include "proto/wire.pb.h"

namespace muster::testing {

// How large the model is, and how much may go wrong in it. What is not a fault happens in any
// order.
struct Bounds {
  uint32_t workers = 2, slices = 4;
  int64_t steps = 2;
  bool evaluates = false;   // W(v) after each step, two blocks
  bool two_phases = false;  // the whole gradient is added before anything is updated
  bool tunes = false;       // algorithms are chosen by timing, before the first step
  // A worker ends at any point; without a word, or it is given up while it goes on.
  int crashes = 1, silences = 0;
  int replacements = 1;  // of lost workers
  int newcomers = 0;     // workers that nobody waits for
  int stalls = 0;        // who has not brought all is late, and others get its work as well
  int leaves = 0;
  int in_flight = 1;   // messages on the way of a worker that has an order unread
  bool ahead = false;  // … and of any other
};

class ModelJob {
 public:
  explicit ModelJob(const Bounds& bounds);

  const Bounds& bounds() const { return bounds_; }
  const config::Config& config() const { return config_; }
  const StepPlan& plan() const { return plan_; }
  const std::vector<Chunk>& chunks() const { return chunks_; }
  size_t floats() const { return graph_.layout().arena_floats(); }
  const wire::Hello& hello() const { return hello_; }
  uint64_t job() const { return job_; }

  // The gradient of a subtree; the weights; and what the undisturbed run ends with.
  std::span<const float> Gradient(int64_t step, const TreeNode& node) const;
  std::span<const float> Weights(int64_t version) const {
    return weights_[static_cast<size_t>(version)];
  }
  uint64_t weights_hash() const { return weights_hash_; }
  static double Loss(int64_t step, int64_t slice) {
    return static_cast<double>(step + 1) + static_cast<double>(slice) / 8;
  }
  static double BlockLoss(int64_t version, int64_t block) {
    return static_cast<double>(version + 1) + static_cast<double>(block) / 4;
  }
  // Which slices this value would be the sum of: "slice 2 is in it 2 times".
  std::string SlicesIn(float difference, int64_t step) const;

  static constexpr int64_t kSamplesPerSlice = 4, kBlockSize = 4, kBlocks = 2;

 private:
  void MakeGradients();

  const Bounds bounds_;
  const config::Config config_;
  const Graph graph_;
  const uint64_t job_;
  StepPlan plan_;
  std::vector<Chunk> chunks_;
  wire::Hello hello_;
  std::map<std::pair<int64_t, std::pair<uint32_t, uint32_t>>, std::vector<float>> gradients_;
  std::vector<std::vector<float>> weights_;
  uint64_t weights_hash_ = 0;
};

}  // namespace muster::testing
