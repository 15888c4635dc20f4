// Computes the results of a job in one process with plain loops.
//
// The oracle uses worker/nn for a slice's gradient and worker/data for samples. Everything else,
// from the initial weights to the moving average, is a second implementation of the formulas in
// proto/config.proto. It shares no code with ps/, worker/client, worker/trainer, the transports and
// the command line. A job with another weights hash is therefore wrong, whatever its workers,
// transport and faults were.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/graph/variable_layout.h"
#include "proto/config.pb.h"

namespace muster::oracle {

struct Result {
  uint64_t weights_hash = 0;
  int64_t steps = 0;              // fewer than planned if the run stopped early
  double accuracy = 0, loss = 0;  // of the last evaluation during the run
};

// Trains a resolved config from the first to the last step. Throws Error(kUsage) for a config that
// does not start from random weights, and Error(kNonfinite) where a job would.
Result Train(const config::Config& config);

// The following functions are in separate files.

// A parameter buffer for run.seed. The padding between variables is zero.
std::vector<float> InitialWeights(const VariableLayout& layout, uint64_t seed);

// The learning rate of an update after `samples` samples and, for PLATEAU, `reductions` reductions.
// `run_samples`: the samples of the whole run.
double RateAt(const config::LearningRate& settings, uint32_t workers, int64_t run_samples,
              int64_t samples, int64_t reductions);

// Weights, optimizer state and moving average, and how a gradient updates them. Buffers have the
// layout's size.
class Updater {
 public:
  Updater(const VariableLayout& layout, const config::Optimizer& settings,
          std::vector<float> weights);

  // `gradient` is that of the mean loss over the batch, with batch statistics in the place of
  // running statistics.
  void Update(std::span<const float> gradient, double learning_rate);
  std::span<const float> weights() const { return weights_; }
  std::span<const float> average() const { return average_; }  // with optimizer.ema_decay

 private:
  bool IsTrained(const Variable& variable) const;
  float DecayOf(const Variable& variable) const;
  void Clip(std::vector<float>& gradient) const;
  // The direction of a step for gradient `g`, before the learning rate. Updates the state of
  // element i.
  float Direction(size_t i, float g);

  const VariableLayout& layout_;
  const config::Optimizer& settings_;
  std::vector<float> weights_, average_, first_, second_;  // moments, or velocity and mean square
  int64_t updates_ = 0;
};

}  // namespace muster::oracle
