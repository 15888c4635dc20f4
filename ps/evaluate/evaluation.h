// One evaluation of a set: blocks of samples spread over the workers, summed in block order, so
// that the result does not depend on how many workers there are.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "common/plan/evaluation_sums.h"
#include "proto/wire.pb.h"

namespace muster {

// "test" or "validation": in messages, and in the keys of metrics.jsonl.
const char* SetName(wire::EvaluationSet set);

struct EvaluationResult {
  wire::EvaluationSet set = wire::TEST;
  int64_t version = 0;  // of the weights: the number of steps they have seen
  double loss = 0;      // mean
  double accuracy = 0;  // share of the samples; of values minus the loss (IsAccuracy)
  std::optional<double> top5_accuracy;  // EvaluationScores
};

class Evaluation {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // `ranks`: who evaluates, ascending. `classes`: logits of the network; 1: it predicts values.
  // `predictions`: blocks bring label and prediction of each sample. `times`: what each rank takes
  // for as much as any other; empty: they are equally fast.
  Evaluation(int64_t version, wire::EvaluationSet set, int64_t samples, int64_t block_size,
             std::vector<uint32_t> ranks, int64_t classes, bool predictions, Time now,
             const std::vector<double>& times = {});

  int64_t version() const { return version_; }
  wire::EvaluationSet set() const { return set_; }
  int64_t blocks() const { return sums_.blocks(); }
  int64_t done() const { return sums_.done(); }
  const std::vector<uint32_t>& ranks() const { return ranks_; }
  // The share of a rank that it begins with; none for a rank that takes no part.
  Range BlocksOf(uint32_t rank) const;
  // Which samples of the set a block has.
  Range SamplesOf(int64_t block) const { return sums_.SamplesOf(block); }

  // A block has arrived, or it is assigned to one rank, or it is unassigned.
  void Give(uint32_t rank, const Range& blocks, Time now);
  // The blocks of this rank become unassigned. How many there are.
  int64_t Drop(uint32_t rank);
  // False: the block is of another version or set, not assigned to this rank, or contradicts
  // itself.
  bool Add(uint32_t rank, const wire::EvaluatedBlock& block, Time now);
  bool Complete() const { return sums_.Complete(); }
  bool Has(int64_t block) const { return sums_.Has(block); }
  std::vector<int64_t> Unassigned() const;
  std::vector<int64_t> AssignedTo(uint32_t rank) const;
  bool Owes(uint32_t rank) const;
  std::vector<uint32_t> OwingRanks() const;

  // When the last block came or was given; the longest time so far from one block to the next.
  Time last_progress() const { return last_progress_; }
  Time last_given() const { return last_given_; }
  std::chrono::steady_clock::duration longest_gap() const { return longest_gap_; }
  // The server was suspended.
  void Extend(std::chrono::steady_clock::duration suspension) {
    last_progress_ += suspension;
    last_given_ += suspension;
  }

  EvaluationResult Result() const;
  // Null unless predictions were asked for.
  const ConfusionMatrix* confusion_matrix() const { return sums_.confusion_matrix(); }

 private:
  static constexpr uint32_t kNobody = UINT32_MAX;
  const int64_t version_;
  const wire::EvaluationSet set_;
  const std::vector<uint32_t> ranks_;
  EvaluationSums sums_;
  std::vector<Range> shares_;     // of each of the ranks
  std::vector<uint32_t> owners_;  // of each block that has not arrived
  // How many blocks each rank owes, and nobody has: a set may have 100,000 blocks, which are not
  // counted for each that comes.
  std::map<uint32_t, int64_t> owed_;
  int64_t unassigned_ = 0;
  Time last_progress_, last_given_;
  std::chrono::steady_clock::duration longest_gap_{};
};

}  // namespace muster
