// loss = -Σ t_j log softmax(x)_j = log Σ exp(x_j) - Σ t_j x_j, with the gradient softmax(x) - t,
// where t is smoothing / outputs everywhere, plus 1 - smoothing at the label.
#include <cmath>

#include "worker/backend/cpu/label_loss.h"

namespace muster::cpu {
namespace {

struct SoftmaxCrossEntropy {
  float smoothing, everywhere;

  static constexpr bool kKeepsFloats = true;  // the probabilities

  double Loss(std::span<const float> x, int64_t own, const SampleResult& result,
              float* probability) const {
    // Forces NaN for non-finite logits: a -infinity would vanish in the sum.
    const float largest = result.finite ? x[static_cast<size_t>(result.prediction)]
                                        : std::numeric_limits<float>::quiet_NaN();
    double sum = 0, below = 0;  // below: Σ (x_j - largest)
    for (size_t j = 0; j < x.size(); ++j) {
      probability[j] = std::exp(x[j] - largest);
      sum += probability[j];
      if (smoothing > 0) below += double{x[j]} - largest;
    }
    const float scale = static_cast<float>(1.0 / sum);
    for (size_t j = 0; j < x.size(); ++j) probability[j] *= scale;
    if (own < 0) return 0;
    return std::log(sum) - (1.0 - smoothing) * (double{x[static_cast<size_t>(own)]} - largest) -
           smoothing * below / static_cast<double>(x.size());
  }
  float Slope(const float*, const float* probability, int64_t j, bool own) const {
    return probability[j] - (own ? 1.0f - smoothing + everywhere : everywhere);
  }
  float Factor(float scale, int64_t) const { return scale; }
};

}  // namespace

std::unique_ptr<LossOp> Make(const SoftmaxCrossEntropySpec& spec, const OpRequest& request) {
  const auto outputs = static_cast<float>(request.layer.input_shape.elements());
  return std::make_unique<LabelLoss<SoftmaxCrossEntropy>>(
      request, SoftmaxCrossEntropy{spec.label_smoothing, spec.label_smoothing / outputs});
}

}  // namespace muster::cpu
