// The modelled job: two chunks (or many), a few slices and steps, and the expected contents of all
// messages in closed form. Weights reveal which slices' gradients they include.
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

// The size of the model and the number of faults. Other events happen in any order.
struct Bounds {
  uint32_t workers = 2, slices = 4;
  int64_t steps = 2;
  int64_t hidden = 0;       // units of another layer; with it values do not name their slices
  bool evaluates = false;   // W(v) after each step, two blocks
  bool splits = false;      // evaluates a validation set, and at the end the test set
  bool two_phases = false;  // the whole gradient is added up before any update
  bool momentum = false;    // the optimizer has a state
  bool average = false;     // evaluates a moving average of the weights
  bool long_steps = false;  // slices are pushed one by one as soon as this is known
  bool remote = false;      // no shared memory: each process has copies
  // Steps that are skipped, because a loss or gradient is not finite; -1: none.
  int64_t bad_loss = -1, bad_gradient = -1;
  // A crash ends a worker at any point. Silence makes the server drop a worker that continues.
  int crashes = 1, silences = 0;
  int replacements = 1;  // of lost workers
  int newcomers = 0;     // additional workers
  int stalls = 0;        // unfinished workers count as slow, and others get their work as well
  int leaves = 0;
  int restarts = 0;    // the server and all workers end; new ones resume from a checkpoint
  int in_flight = 1;   // the most undelivered messages of a worker with an unread order
  bool ahead = false;  // the same limit applies to other workers
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

  // Gradient() is for a subtree. The others describe the undisturbed run before each step: weights,
  // optimizer state, average, and the numbers of updates and of skipped steps in a row.
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
  // Explains a value by the slices in its sum: "it includes slice 2 2 times".
  std::string SlicesIn(float difference, int64_t step) const;

  static constexpr int64_t kSamplesPerSlice = 4, kBlockSize = 4, kBlocks = 2;

 private:
  // A state of the undisturbed run.
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
