// One evaluation of a data set: blocks of samples are divided among the workers and summed in block
// order, so the result does not depend on the number of workers.
#pragma once

#include <chrono>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "common/plan/evaluation_sums.h"
#include "proto/wire.pb.h"

namespace muster {

// "test" or "validation", for messages and the keys of metrics.jsonl.
const char* SetName(wire::EvaluationSet set);

struct EvaluationResult {
  wire::EvaluationSet set = wire::TEST;
  int64_t version = 0;             // version of the weights
  double loss = 0;                 // mean over the samples
  std::optional<double> accuracy;  // share of correct samples; regression has none
  ScalarSums scalars = {};

  // Some outputs or targets of the network are not finite. Such weights are never the best, and
  // stop no run, however high their accuracy on the other samples is.
  bool finite() const { return std::isfinite(loss); }
  // What decides which weights are better: the accuracy, or without one the negative loss.
  double score() const { return !finite() ? -HUGE_VAL : accuracy ? *accuracy : -loss; }
};

class Evaluation {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // `ranks`: the evaluating workers, ascending. `classes`: number of logits; 1: regression.
  // `predictions`: blocks contain the label and prediction of each sample. `times`: relative time
  // of each rank for equal work; empty: all equal.
  Evaluation(int64_t version, wire::EvaluationSet set, int64_t samples, int64_t block_size,
             std::vector<uint32_t> ranks, int64_t classes, bool predictions, Time now,
             const std::vector<double>& times = {});

  int64_t version() const { return version_; }
  wire::EvaluationSet set() const { return set_; }
  int64_t blocks() const { return sums_.blocks(); }
  int64_t done() const { return sums_.done(); }
  const std::vector<uint32_t>& ranks() const { return ranks_; }
  // The blocks initially assigned to a rank; empty if it does not take part.
  Range BlocksOf(uint32_t rank) const;
  // The range of samples in a block.
  Range SamplesOf(int64_t block) const { return sums_.SamplesOf(block); }

  // Assigns blocks to a rank. Every block has arrived, is assigned to one rank, or is unassigned.
  void Give(uint32_t rank, const Range& blocks, Time now);
  // Unassigns the blocks of a rank and returns their number.
  int64_t Drop(uint32_t rank);
  // Returns false if the block has a different version or set, is not assigned to this rank, or is
  // inconsistent.
  bool Add(uint32_t rank, const wire::EvaluatedBlock& block, Time now);
  bool Complete() const { return sums_.Complete(); }
  bool Has(int64_t block) const { return sums_.Has(block); }
  std::vector<int64_t> Unassigned() const;
  std::vector<int64_t> AssignedTo(uint32_t rank) const;
  bool Owes(uint32_t rank) const;
  std::vector<uint32_t> OwingRanks() const;

  // Times of the last arrival and the last assignment of blocks, and the longest time between two
  // arrivals.
  Time last_progress() const { return last_progress_; }
  Time last_given() const { return last_given_; }
  std::chrono::steady_clock::duration longest_gap() const { return longest_gap_; }
  void Extend(std::chrono::steady_clock::duration suspension) {
    last_progress_ += suspension;
    last_given_ += suspension;
  }

  EvaluationResult Result() const;
  // Null unless predictions were requested.
  const ConfusionMatrix* confusion_matrix() const { return sums_.confusion_matrix(); }

 private:
  static constexpr uint32_t kNobody = UINT32_MAX;
  const int64_t version_;
  const wire::EvaluationSet set_;
  const std::vector<uint32_t> ranks_;
  EvaluationSums sums_;
  std::vector<Range> shares_;     // indexed by position in ranks_
  std::vector<uint32_t> owners_;  // the rank of each block until it has arrived
  // Number of assigned blocks per rank. Cached because a set may have 100,000 blocks.
  std::map<uint32_t, int64_t> owed_;
  int64_t unassigned_ = 0;
  Time last_progress_, last_given_;
  std::chrono::steady_clock::duration longest_gap_{};
};

}  // namespace muster
