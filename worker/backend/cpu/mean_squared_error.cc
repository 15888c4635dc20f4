// loss = Σ (x_j - t_j)² / outputs, with the gradient 2 (x - t) / outputs, where t is 1 at the label
// and 0 elsewhere.
#include "worker/backend/cpu/label_loss.h"

namespace muster::cpu {
namespace {

struct MeanSquaredError {
  static constexpr bool kKeepsFloats = false;

  double Loss(std::span<const float> x, int64_t own, const SampleResult&, float*) const {
    double sum = 0;
    for (size_t j = 0; j < x.size(); ++j) {
      const double difference = double{x[j]} - (static_cast<int64_t>(j) == own ? 1 : 0);
      sum += difference * difference;
    }
    return sum / static_cast<double>(x.size());
  }
  float Slope(const float* x, const float*, int64_t j, bool own) const {
    return x[j] - (own ? 1.0f : 0.0f);
  }
  float Factor(float scale, int64_t outputs) const {
    return 2.0f * scale / static_cast<float>(outputs);
  }
};

}  // namespace

std::unique_ptr<LossOp> Make(const MeanSquaredErrorSpec&, const OpRequest& request) {
  if (request.layer.is_of_values()) return MakeValueError(request.options);
  return std::make_unique<LabelLoss<MeanSquaredError>>(request, MeanSquaredError{});
}

}  // namespace muster::cpu
