#include "ps/evaluation.h"

#include <algorithm>

namespace muster {

Evaluation::Evaluation(int64_t version, int64_t test_samples, int64_t block_size, uint32_t workers)
    : version_(version),
      test_samples_(test_samples),
      block_size_(block_size),
      workers_(workers),
      results_(static_cast<size_t>((test_samples + block_size - 1) / block_size)) {}

bool Evaluation::Add(uint32_t rank, int64_t block, int64_t samples, double loss, int64_t correct) {
  const Range mine = BlocksOf(rank);
  if (block < mine.begin || block >= mine.end) return false;
  if (samples != std::min(block_size_, test_samples_ - block * block_size_)) return false;
  Result& result = results_[static_cast<size_t>(block)];
  if (result.present) return false;
  result = {true, loss, correct};
  ++done_;
  last_progress_ = std::chrono::steady_clock::now();
  return true;
}

std::vector<uint32_t> Evaluation::MissingRanks() const {
  std::vector<uint32_t> missing;
  for (uint32_t rank = 0; rank < workers_; ++rank) {
    const Range mine = BlocksOf(rank);
    if (std::any_of(results_.begin() + mine.begin, results_.begin() + mine.end,
                    [](const Result& result) { return !result.present; })) {
      missing.push_back(rank);
    }
  }
  return missing;
}

double Evaluation::Loss() const {
  double sum = 0;
  for (const Result& result : results_) sum += result.loss;
  return sum / static_cast<double>(test_samples_);
}

double Evaluation::Accuracy() const {
  int64_t correct = 0;
  for (const Result& result : results_) correct += result.correct;
  return static_cast<double>(correct) / static_cast<double>(test_samples_);
}

}  // namespace muster
