// One evaluation of a set: blocks of samples spread over the workers, summed in block order, so
// that the result does not depend on how many workers there are.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "common/plan/slices.h"
#include "proto/wire.pb.h"
#include "ps/confusion_matrix.h"

namespace muster {

// "test" or "validation": in messages, and in the keys of metrics.jsonl.
const char* SetName(wire::EvaluationSet set);

struct EvaluationResult {
  wire::EvaluationSet set = wire::TEST;
  int64_t version = 0;  // of the weights: the number of steps they have seen
  double loss = 0;      // mean
  double accuracy = 0;  // share of the samples; of values minus the loss (IsAccuracy)
  // The label is among the five largest logits. Not given for five classes or fewer, where it
  // would always be 1.
  std::optional<double> top5_accuracy;
};

class Evaluation {
 public:
  // `ranks`: who evaluates, ascending. `classes`: logits of the network; 1: it predicts values.
  // `predictions`: blocks bring label and prediction of each sample. `times`: what each rank takes
  // for as much as any other; empty: they are equally fast.
  Evaluation(int64_t version, wire::EvaluationSet set, int64_t samples, int64_t block_size,
             std::vector<uint32_t> ranks, int64_t classes, bool predictions,
             const std::vector<double>& times = {});

  int64_t version() const { return version_; }
  wire::EvaluationSet set() const { return set_; }
  int64_t blocks() const { return static_cast<int64_t>(results_.size()); }
  int64_t done() const { return done_; }
  const std::vector<uint32_t>& ranks() const { return ranks_; }
  // The share of a rank that it begins with; none for a rank that takes no part.
  Range BlocksOf(uint32_t rank) const;
  // The rank evaluates nothing any more. How many blocks it has not brought.
  int64_t Drop(uint32_t rank);
  // The blocks that the rank is to bring and that nobody has brought, ascending.
  std::vector<int64_t> MissingOf(uint32_t rank) const;
  // Which samples of the set a block has.
  Range SamplesOf(int64_t block) const;
  // Nobody waits for the rank any more, but what it brings counts if it is first. Until it has
  // brought all that it had, or it is waited for after all.
  void MarkLate(uint32_t rank) { late_.insert(rank); }
  void WaitForAfterAll(uint32_t rank) { late_.erase(rank); }
  const std::set<uint32_t>& late() const { return late_; }
  // The blocks that have not come, and that nobody evaluates who is not late, ascending.
  std::vector<int64_t> Orphans() const;
  // Somebody else evaluates these.
  void Give(uint32_t rank, const Range& blocks);
  bool Complete() const { return done_ == blocks(); }
  // The ranks with blocks that are missing.
  std::vector<uint32_t> MissingRanks() const;
  std::chrono::steady_clock::time_point last_progress() const { return last_progress_; }
  std::chrono::steady_clock::time_point last_given() const { return last_given_; }
  // The longest time so far from one block to the next, or to the first.
  std::chrono::steady_clock::duration longest_gap() const { return longest_gap_; }

  // Moves these on by a time in which nothing could be seen.
  void Forgive(std::chrono::steady_clock::duration gap) {
    last_progress_ += gap;
    last_given_ += gap;
  }

  // kUnexpected: the block is of another version or set, does not belong to this rank, has come
  // from it already, has the wrong size, or counts and classes that cannot be. kHere: somebody else
  // was first.
  enum class Added { kNew, kHere, kUnexpected };
  Added Add(uint32_t rank, const wire::EvaluatedBlock& block);

  EvaluationResult Result() const;
  // Null unless predictions were asked for.
  const ConfusionMatrix* confusion_matrix() const { return matrix_ ? &*matrix_ : nullptr; }

 private:
  friend class ServerProbe;  // tests/protocol looks at all of it
  struct Block {
    bool present = false;
    double loss = 0;
    int64_t correct = 0, correct_top5 = 0;
  };
  const int64_t version_;
  const wire::EvaluationSet set_;
  const int64_t samples_, block_size_;
  const std::vector<uint32_t> ranks_;
  const int64_t classes_;
  std::vector<Block> results_;
  std::vector<Range> shares_;               // of each of the ranks
  std::vector<std::set<uint32_t>> owners_;  // who is to bring each block
  // How many each one has of these, and how many of them nobody has brought: a set may have
  // 100,000 blocks, which nobody counts for each that comes.
  std::map<uint32_t, int64_t> to_bring_, missing_;
  std::optional<ConfusionMatrix> matrix_;
  std::set<uint32_t> late_;
  int64_t done_ = 0;
  std::chrono::steady_clock::time_point last_progress_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point last_given_ = last_progress_;
  std::chrono::steady_clock::duration longest_gap_{};
};

}  // namespace muster
