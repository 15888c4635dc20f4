// loss = Σ (log(1 + exp(x_j)) - t_j x_j) / outputs, with the gradient (1 / (1 + exp(-x)) - t) /
// outputs, where t is 1 at the label and 0 elsewhere.
#include <algorithm>
#include <cmath>

#include "worker/backend/cpu/label_loss.h"

namespace muster::cpu {
namespace {

struct SigmoidCrossEntropy {
  static constexpr bool kKeepsFloats = false;

  double Loss(std::span<const float> logits, int64_t own, const SampleResult&, float*) const {
    double sum = 0;
    for (size_t j = 0; j < logits.size(); ++j) {
      const double x = logits[j];
      // Does not overflow for large x.
      sum += std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)));
      if (static_cast<int64_t>(j) == own) sum -= x;
    }
    return sum / static_cast<double>(logits.size());
  }
  float Slope(const float* x, const float*, int64_t j, bool own) const {
    return 1.0f / (1.0f + std::exp(-x[j])) - (own ? 1.0f : 0.0f);
  }
  float Factor(float scale, int64_t outputs) const { return scale / static_cast<float>(outputs); }
};

}  // namespace

std::unique_ptr<LossOp> Make(const SigmoidCrossEntropySpec&, const OpRequest& request) {
  return std::make_unique<LabelLoss<SigmoidCrossEntropy>>(request, SigmoidCrossEntropy{});
}

}  // namespace muster::cpu
