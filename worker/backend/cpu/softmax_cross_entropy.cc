// loss = -Σ t_j log softmax(x)_j = log Σ exp(x_j) - Σ t_j x_j, its gradient softmax(x) - t, where t
// is 1 - smoothing at the label and smoothing / classes more everywhere.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "common/base/error.h"
#include "worker/backend/cpu/kernels.h"
#include "worker/backend/cpu/loss_counts.h"
#include "worker/backend/cpu/ops.h"

namespace muster::cpu {
namespace {

class SoftmaxCrossEntropy : public FloatLoss {
 public:
  SoftmaxCrossEntropy(const Layer& layer, const OpOptions& options)
      : batch_(options.batch),
        classes_(layer.input_shape.elements()),
        smoothing_(std::get<SoftmaxCrossEntropySpec>(layer.spec).label_smoothing),
        input_is_relu_(options.input_is_relu),
        results_(batch_) {}

  size_t state_floats() const override { return batch_ * classes_; }  // the probabilities

  LossSums ForwardFloats(const float* logits, const int32_t* labels, float* state,
                         int32_t* predictions) override {
    ParallelFor(batch_, [&](int64_t n) {
      MUSTER_CHECK(labels[n] >= kNoLabel && labels[n] < classes_);
      const float* const x = logits + n * classes_;
      results_[n] = CountSample({x, static_cast<size_t>(classes_)}, labels[n]);
      results_[n].loss = ForwardSample(x, labels[n], results_[n], state + n * classes_);
    });
    return AddUp(results_, predictions);
  }

  void BackwardFloats(float scale, const float* logits, const int32_t* labels, const float* state,
                      float* logits_gradient) override {
    const float everywhere = smoothing_ / static_cast<float>(classes_);
    ParallelFor(batch_, [&](int64_t n) {
      const float* const probability = state + n * classes_;
      float* const gradient = logits_gradient + n * classes_;
      const float weight = labels[n] == kNoLabel ? 0.0f : scale;
      for (int64_t j = 0; j < classes_; ++j) gradient[j] = weight * (probability[j] - everywhere);
      if (labels[n] != kNoLabel) {
        gradient[labels[n]] = scale * (probability[labels[n]] - (1.0f - smoothing_ + everywhere));
      }
      if (!input_is_relu_) return;
      for (int64_t j = 0; j < classes_; ++j) {
        if (!(logits[n * classes_ + j] > 0)) gradient[j] = 0;
      }
    });
  }

 private:
  // Returns the loss.
  double ForwardSample(const float* x, int32_t label, const SampleResult& result,
                       float* probability) const {
    // Never hidden: an infinity below the maximum would vanish in the sum.
    const float largest =
        result.finite ? x[result.prediction] : std::numeric_limits<float>::quiet_NaN();
    double sum = 0, below = 0;  // below: Σ (x_j - largest)
    for (int64_t j = 0; j < classes_; ++j) {
      probability[j] = std::exp(x[j] - largest);
      sum += probability[j];
      if (smoothing_ > 0) below += double{x[j]} - largest;
    }
    const float scale = static_cast<float>(1.0 / sum);
    for (int64_t j = 0; j < classes_; ++j) probability[j] *= scale;
    if (label == kNoLabel) {
      return result.finite ? 0.0 : std::numeric_limits<double>::quiet_NaN();
    }
    return std::log(sum) - (1.0 - smoothing_) * (double{x[label]} - largest) -
           smoothing_ * below / static_cast<double>(classes_);
  }

  const int64_t batch_, classes_;
  const float smoothing_;
  const bool input_is_relu_;
  std::vector<SampleResult> results_;
};

}  // namespace

std::unique_ptr<LossOp> Make(const SoftmaxCrossEntropySpec&, const OpRequest& request) {
  return std::make_unique<SoftmaxCrossEntropy>(request.layer, request.options);
}

}  // namespace muster::cpu
