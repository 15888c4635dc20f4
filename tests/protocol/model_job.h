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
  bool splits = false;      // evaluates a validation set, and at the end the test set
  bool two_phases = false;  // the whole gradient is added before anything is updated
  bool momentum = false;    // the optimizer has a state
  bool average = false;     // evaluates a moving average of the weights
  bool long_steps = false;  // slices are pushed one by one, once that is known
  bool remote = false;      // no memory is shared: each has copies of its own
  // Steps that are skipped, since a loss or a gradient of them is not finite; -1: none.
  int64_t bad_loss = -1, bad_gradient = -1;
  // A worker ends at any point; without a word, or it is given up while it goes on.
  int crashes = 1, silences = 0;
  int replacements = 1;  // of lost workers
  int newcomers = 0;     // workers that nobody waits for
  int stalls = 0;        // who has not brought all is late, and others get its work as well
  int leaves = 0;
  int restarts = 0;    // the server ends, and all workers; others go on from a checkpoint
  int in_flight = 1;   // messages on the way of a worker that has an order unread
  bool ahead = false;  // of any other worker
};

class ModelJob {
 public:
  explicit ModelJob(const Bounds& bounds);

  const Bounds& bounds() const { return bounds_; }
  const config::Config& config() const { return config_; }
  const Graph& graph() const { return graph_; }
  const StepPlan& plan() const { return plan_; }
  const std::vector<Chunk>& chunks() const { return chunks_; }
  size_t floats() const { return graph_.layout().arena_floats(); }
  const wire::Hello& hello() const { return hello_; }
  uint64_t job() const { return job_; }

  // The gradient of a subtree; and of the undisturbed run the weights, the optimizer's state and
  // the average before each step, how many steps were not skipped until then, and its end.
  std::span<const float> Gradient(int64_t step, const TreeNode& node) const;
  std::span<const float> Weights(int64_t version) const { return At(version).weights; }
  std::span<const float> Momentum(int64_t version) const { return At(version).momentum; }
  std::span<const float> Average(int64_t version) const { return At(version).average; }
  int64_t Updates(int64_t version) const { return At(version).updates; }
  int64_t SkippedInARow(int64_t version) const { return At(version).skipped; }
  uint64_t weights_hash() const { return weights_hash_; }
  double Loss(int64_t step, int64_t slice) const;
  static double BlockLoss(int64_t version, wire::EvaluationSet set, int64_t block) {
    return static_cast<double>(version + 1) + static_cast<double>(block) / 4 +
           (set == wire::VALIDATION ? 64 : 0);
  }
  // The mean loss of a whole evaluation.
  static double EvaluationLoss(int64_t version, wire::EvaluationSet set) {
    double loss = 0;
    for (int64_t block = 0; block < kBlocks; ++block) loss += BlockLoss(version, set, block);
    return loss / (kBlocks * kBlockSize);
  }
  // Which slices this value would be the sum of: "slice 2 is in it 2 times".
  std::string SlicesIn(float difference, int64_t step) const;

  static constexpr int64_t kSamplesPerSlice = 4, kBlockSize = 4, kBlocks = 2;

 private:
  // A moment of the undisturbed run.
  struct Moment {
    std::vector<float> weights, momentum, average;
    int64_t updates = 0, skipped = 0;
  };
  const Moment& At(int64_t version) const { return moments_[static_cast<size_t>(version)]; }
  void MakeGradients();
  Moment After(const Moment& before, int64_t step) const;

  const Bounds bounds_;
  const config::Config config_;
  const Graph graph_;
  const uint64_t job_;
  StepPlan plan_;
  std::vector<Chunk> chunks_;
  wire::Hello hello_;
  std::map<std::pair<int64_t, std::pair<uint32_t, uint32_t>>, std::vector<float>> gradients_;
  std::vector<Moment> moments_;
  uint64_t weights_hash_ = 0;
};

}  // namespace muster::testing
