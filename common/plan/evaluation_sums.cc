#include "common/plan/evaluation_sums.h"

#include <algorithm>
#include <cmath>

#include "common/plan/metrics.h"

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
  if (block < 0 || block >= blocks() || result.samples != SamplesOf(block).size() ||
      result.correct < 0 || result.correct > result.samples ||
      result.metrics.size() > kMetricCount) {
    return Added::kUnexpected;
  }
  for (size_t m = 0; m < result.metrics.size(); ++m) {
    const double sum = result.metrics[m];
    if (kMetrics[m].is_share && !(sum >= 0 && sum <= static_cast<double>(result.samples)))
      return Added::kUnexpected;
  }
  if (Has(block)) return Added::kHere;
  if (matrix_ && (std::ssize(result.labels) != result.samples ||
                  !matrix_->Add(result.labels, result.predicted))) {
    return Added::kUnexpected;
  }
  Block& here = results_[static_cast<size_t>(block)];
  here = {true, result.loss, result.correct, result.scalars};
  for (size_t m = 0; m < result.metrics.size(); ++m) {
    if (!kMetrics[m].applies(classes_)) continue;
    here.scalars[kMetrics[m].name] = {result.metrics[m], result.samples};
  }
  ++done_;
  return Added::kNew;
}

EvaluationScores EvaluationSums::Scores() const {
  EvaluationScores scores;
  int64_t correct = 0;
  for (const Block& block : results_) {
    scores.loss += block.loss;
    correct += block.correct;
    AddScalarSums(block.scalars, scores.scalars);
  }
  const double n = static_cast<double>(samples_);
  // Without the sign of a NaN, which would print as "-nan".
  scores.loss = std::isnan(scores.loss) ? NAN : scores.loss / n;
  if (classes_ != 1) scores.accuracy = static_cast<double>(correct) / n;
  return scores;
}

}  // namespace muster
