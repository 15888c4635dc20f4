// How a set is cut into blocks for an evaluation, and what they add up to. Blocks are added in
// their order, whoever computed them and whichever came first: so the bits of the result depend on
// the size of a block, and not on how many evaluate.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "common/plan/confusion_matrix.h"
#include "common/plan/slices.h"

namespace muster {

struct EvaluatedSamples {
  int64_t samples = 0;
  double loss = 0;  // sum over the samples
  int64_t correct = 0;
  int64_t correct_top5 = 0;  // the label is among the five largest logits
  // Of each sample, in the order of the set.
  std::span<const uint32_t> labels = {}, predicted = {};
};

struct EvaluationScores {
  double loss = 0;      // mean
  double accuracy = 0;  // share of the samples; of values minus the loss (IsAccuracy)
  // Not given for five classes or fewer, where it would always be 1.
  std::optional<double> top5_accuracy;
};

class EvaluationSums {
 public:
  // `classes`: logits of the network; 1: it predicts values. `predictions`: blocks bring label and
  // prediction of each sample, which make the confusion matrix.
  EvaluationSums(int64_t samples, int64_t block_size, int64_t classes, bool predictions);

  int64_t blocks() const { return static_cast<int64_t>(results_.size()); }
  int64_t done() const { return done_; }
  bool Complete() const { return done_ == blocks(); }
  bool Has(int64_t block) const { return results_[static_cast<size_t>(block)].present; }
  // Which samples of the set a block has.
  Range SamplesOf(int64_t block) const;

  // kHere: it was there already. kUnexpected: there is no such block, it has the wrong size, or
  // counts and classes that cannot be.
  enum class Added { kNew, kHere, kUnexpected };
  Added Add(int64_t block, const EvaluatedSamples& result);

  EvaluationScores Scores() const;
  // Null unless there are predictions.
  const ConfusionMatrix* confusion_matrix() const { return matrix_ ? &*matrix_ : nullptr; }

 private:
  struct Block {
    bool present = false;
    double loss = 0;
    int64_t correct = 0, correct_top5 = 0;
  };
  int64_t samples_, block_size_, classes_;
  int64_t done_ = 0;
  std::vector<Block> results_;
  std::optional<ConfusionMatrix> matrix_;
};

}  // namespace muster
