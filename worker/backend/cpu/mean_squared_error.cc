// loss = Σ (x_j - t_j)² / classes, its gradient 2 (x - t) / classes, where t is 1 at the label and
// 0 elsewhere.
#include <cmath>
#include <limits>
#include <vector>

#include "common/base/error.h"
#include "worker/backend/cpu/kernels.h"
#include "worker/backend/cpu/loss_counts.h"
#include "worker/backend/cpu/ops.h"

namespace muster::cpu {
namespace {

class MeanSquaredError : public FloatLoss {
 public:
  MeanSquaredError(const Layer& layer, const OpOptions& options)
      : batch_(options.batch),
        classes_(layer.input_shape.elements()),
        input_is_relu_(options.input_is_relu),
        results_(batch_) {}

  size_t state_floats() const override { return 0; }

  LossSums ForwardFloats(const float* logits, const int32_t* labels, float*,
                         int32_t* predictions) override {
    ParallelFor(batch_, [&](int64_t n) {
      MUSTER_CHECK(labels[n] >= kNoLabel && labels[n] < classes_);
      const float* const x = logits + n * classes_;
      results_[n] = CountSample({x, static_cast<size_t>(classes_)}, labels[n]);
      results_[n].loss = Loss(x, labels[n], results_[n].finite);
    });
    return AddUp(results_, predictions);
  }

  void BackwardFloats(float scale, const float* logits, const int32_t* labels, const float*,
                      float* logits_gradient) override {
    ParallelFor(batch_, [&](int64_t n) {
      const float* const x = logits + n * classes_;
      float* const gradient = logits_gradient + n * classes_;
      const float weight =
          labels[n] == kNoLabel ? 0.0f : 2.0f * scale / static_cast<float>(classes_);
      for (int64_t j = 0; j < classes_; ++j) {
        const float difference = x[j] - (j == labels[n] ? 1.0f : 0.0f);
        gradient[j] = input_is_relu_ && !(x[j] > 0) ? 0.0f : weight * difference;
      }
    });
  }

 private:
  double Loss(const float* x, int32_t label, bool finite) const {
    if (!finite) return std::numeric_limits<double>::quiet_NaN();
    if (label == kNoLabel) return 0;
    double sum = 0;
    for (int64_t j = 0; j < classes_; ++j) {
      const double difference = double{x[j]} - (j == label ? 1 : 0);
      sum += difference * difference;
    }
    return sum / static_cast<double>(classes_);
  }

  const int64_t batch_, classes_;
  const bool input_is_relu_;
  std::vector<SampleResult> results_;
};

}  // namespace

std::unique_ptr<LossOp> Make(const MeanSquaredErrorSpec&, const OpRequest& request) {
  if (request.layer.is_of_values()) return MakeValueError(request.options);
  return std::make_unique<MeanSquaredError>(request.layer, request.options);
}

}  // namespace muster::cpu
