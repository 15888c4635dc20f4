// The results for one sample that do not depend on the kind of loss.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "worker/backend/op.h"

namespace muster::cpu {

struct SampleResult {
  double loss = 0;
  int64_t rank = 0;        // as in LossSums::Add
  int32_t prediction = 0;  // the class of the first largest logit
  bool finite = true;      // whether all logits are finite
};

// Computes everything except the loss.
inline SampleResult CountSample(std::span<const float> logits, int32_t label) {
  SampleResult result;
  for (size_t j = 0; j < logits.size(); ++j) {
    if (logits[j] > logits[static_cast<size_t>(result.prediction)]) {
      result.prediction = static_cast<int32_t>(j);
    }
    result.finite &= std::isfinite(logits[j]);
  }
  if (label == kNoLabel || !result.finite) return result;
  for (const float x : logits) result.rank += x >= logits[static_cast<size_t>(label)];
  return result;
}

// Adds in the order of the samples, so that the sums do not depend on the number of threads.
inline LossSums AddUp(const std::vector<SampleResult>& results, int32_t* predictions) {
  LossSums sums;
  for (size_t n = 0; n < results.size(); ++n) {
    sums.Add(results[n].loss, results[n].rank);
    if (predictions != nullptr) predictions[n] = results[n].prediction;
  }
  return sums;
}

}  // namespace muster::cpu
