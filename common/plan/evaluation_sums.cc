#include "common/plan/evaluation_sums.h"

#include <algorithm>
#include <cmath>

namespace muster {

EvaluationSums::EvaluationSums(int64_t samples, int64_t block_size, int64_t classes,
                               bool predictions)
    : samples_(samples),
      block_size_(block_size),
      classes_(classes),
      results_(static_cast<size_t>((samples + block_size - 1) / block_size)) {
  if (predictions) matrix_.emplace(classes);
}

Range EvaluationSums::SamplesOf(int64_t block) const {
  return {block * block_size_, std::min((block + 1) * block_size_, samples_)};
}

EvaluationSums::Added EvaluationSums::Add(int64_t block, const EvaluatedSamples& result) {
  const auto can_be = [&](int64_t count) { return count >= 0 && count <= result.samples; };
  if (block < 0 || block >= blocks() || result.samples != SamplesOf(block).size() ||
      !can_be(result.correct) || !can_be(result.correct_top5)) {
    return Added::kUnexpected;
  }
  if (Has(block)) return Added::kHere;
  if (matrix_ && (std::ssize(result.labels) != result.samples ||
                  !matrix_->Add(result.labels, result.predicted))) {
    return Added::kUnexpected;
  }
  results_[static_cast<size_t>(block)] = {true, result.loss, result.correct, result.correct_top5,
                                          result.scalars};
  ++done_;
  return Added::kNew;
}

EvaluationScores EvaluationSums::Scores() const {
  double loss = 0;
  int64_t correct = 0, correct_top5 = 0;
  for (const Block& block : results_) {
    loss += block.loss;
    correct += block.correct;
    correct_top5 += block.correct_top5;
  }
  const double n = static_cast<double>(samples_);
  // Without the sign of a NaN, which would print as "-nan".
  EvaluationScores scores{.loss = std::isnan(loss) ? NAN : loss / n};
  if (classes_ != 1) scores.accuracy = static_cast<double>(correct) / n;
  for (const Block& block : results_) AddScalarSums(block.scalars, scores.scalars);
  if (classes_ > 5) scores.top5_accuracy = static_cast<double>(correct_top5) / n;
  return scores;
}

}  // namespace muster
