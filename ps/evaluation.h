// One evaluation of the test set: blocks of samples spread over the workers, summed in block
// order, so that the result does not depend on how many workers there are.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "common/slices.h"

namespace muster {

class Evaluation {
 public:
  Evaluation(int64_t version, int64_t test_samples, int64_t block_size, uint32_t workers);

  int64_t version() const { return version_; }
  int64_t blocks() const { return static_cast<int64_t>(results_.size()); }
  int64_t done() const { return done_; }
  Range BlocksOf(uint32_t rank) const { return EvenPart(blocks(), workers_, rank); }
  bool Complete() const { return done_ == blocks(); }
  // The ranks with blocks that are missing.
  std::vector<uint32_t> MissingRanks() const;
  std::chrono::steady_clock::time_point last_progress() const { return last_progress_; }

  // False if the block does not belong to this rank, is here already or has the wrong size.
  bool Add(uint32_t rank, int64_t block, int64_t samples, double loss, int64_t correct);

  double Loss() const;      // mean
  double Accuracy() const;  // share of the samples

 private:
  struct Result {
    bool present = false;
    double loss = 0;
    int64_t correct = 0;
  };
  const int64_t version_, test_samples_, block_size_;
  const uint32_t workers_;
  std::vector<Result> results_;
  int64_t done_ = 0;
  std::chrono::steady_clock::time_point last_progress_ = std::chrono::steady_clock::now();
};

}  // namespace muster
