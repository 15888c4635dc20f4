// Divides an evaluation into blocks and adds their results. Blocks are added in order, regardless
// of which worker computed them and when they arrived. So the bits of the result depend on the
// block size but not on the number of workers.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "common/plan/confusion_matrix.h"
#include "common/plan/scalar_sums.h"
#include "common/plan/slices.h"

namespace muster {

struct EvaluatedSamples {
  int64_t samples = 0;
  double loss = 0;  // sum over the samples
  int64_t correct = 0;
  std::span<const double> metrics = {};  // sums, in the order of metrics.h; empty: a program
  // The label and the prediction of each sample, in the order of the set. Empty if not requested.
  std::span<const uint32_t> labels = {}, predicted = {};
  ScalarSums scalars = {};
};

struct EvaluationScores {
  double loss = 0;                 // mean
  std::optional<double> accuracy;  // share of the samples; values have none
  ScalarSums scalars = {};         // with metrics
};

class EvaluationSums {
 public:
  // `classes` is the number of logits; 1 means that the network predicts values. `predictions`:
  // blocks contain each sample's label and prediction, for the confusion matrix.
  EvaluationSums(int64_t samples, int64_t block_size, int64_t classes, bool predictions);

  int64_t blocks() const { return static_cast<int64_t>(results_.size()); }
  int64_t done() const { return done_; }
  bool Complete() const { return done_ == blocks(); }
  bool Has(int64_t block) const { return results_[static_cast<size_t>(block)].present; }
  // Returns the range of samples in a block.
  Range SamplesOf(int64_t block) const;

  // kHere: the block is a duplicate. kUnexpected: there is no such block, its size is wrong, or its
  // counts or classes are impossible.
  enum class Added { kNew, kHere, kUnexpected };
  Added Add(int64_t block, const EvaluatedSamples& result);

  EvaluationScores Scores() const;
  // Null without predictions.
  const ConfusionMatrix* confusion_matrix() const { return matrix_ ? &*matrix_ : nullptr; }

 private:
  struct Block {
    bool present = false;
    double loss = 0;
    int64_t correct = 0;
    ScalarSums scalars = {};
  };
  int64_t samples_, block_size_, classes_;
  int64_t done_ = 0;
  std::vector<Block> results_;
  std::optional<ConfusionMatrix> matrix_;
};

}  // namespace muster
