#include "ps/evaluation.h"

#include <algorithm>
#include <utility>

namespace muster {

Evaluation::Evaluation(int64_t version, int64_t test_samples, int64_t block_size,
                       std::vector<uint32_t> ranks, int64_t classes, bool predictions)
    : version_(version),
      test_samples_(test_samples),
      block_size_(block_size),
      ranks_(std::move(ranks)),
      classes_(classes),
      results_(static_cast<size_t>((test_samples + block_size - 1) / block_size)) {
  if (predictions) matrix_.emplace(classes);
}

Range Evaluation::BlocksOf(uint32_t rank) const {
  const auto found = std::ranges::find(ranks_, rank);
  if (found == ranks_.end()) return {};
  return EvenPart(blocks(), static_cast<int64_t>(ranks_.size()), found - ranks_.begin());
}

bool Evaluation::Add(uint32_t rank, const wire::EvaluatedBlock& block) {
  const int64_t number = block.block(), samples = block.samples();
  const Range mine = BlocksOf(rank);
  if (block.version() != version_ || number < mine.begin || number >= mine.end) return false;
  if (samples != std::min(block_size_, test_samples_ - number * block_size_)) return false;
  if (block.correct() < 0 || block.correct() > samples) return false;
  if (block.correct_top5() < 0 || block.correct_top5() > samples) return false;
  Block& result = results_[static_cast<size_t>(number)];
  if (result.present) return false;
  if (matrix_) {
    if (block.label_size() != samples) return false;
    if (!matrix_->Add(block.label(), block.predicted())) return false;
  }
  result = {true, block.loss(), block.correct(), block.correct_top5()};
  ++done_;
  last_progress_ = std::chrono::steady_clock::now();
  return true;
}

std::vector<uint32_t> Evaluation::MissingRanks() const {
  std::vector<uint32_t> missing;
  for (const uint32_t rank : ranks_) {
    const Range mine = BlocksOf(rank);
    if (std::any_of(results_.begin() + mine.begin, results_.begin() + mine.end,
                    [](const Block& block) { return !block.present; })) {
      missing.push_back(rank);
    }
  }
  return missing;
}

EvaluationResult Evaluation::Result() const {
  double loss = 0;
  int64_t correct = 0, correct_top5 = 0;
  for (const Block& block : results_) {
    loss += block.loss;
    correct += block.correct;
    correct_top5 += block.correct_top5;
  }
  const double n = static_cast<double>(test_samples_);
  EvaluationResult result{
      .version = version_, .loss = loss / n, .accuracy = static_cast<double>(correct) / n};
  if (classes_ > 5) result.top5_accuracy = static_cast<double>(correct_top5) / n;
  return result;
}

}  // namespace muster
