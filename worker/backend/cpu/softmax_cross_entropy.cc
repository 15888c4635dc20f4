// loss = log Σ_j exp(x_j) - x_label, its gradient softmax(x) - onehot(label).
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "common/error.h"
#include "worker/backend/cpu/kernels.h"
#include "worker/backend/cpu/ops.h"

namespace muster::cpu {
namespace {

constexpr int32_t kNoLabel = -1;  // a sample of weight zero

class SoftmaxCrossEntropy : public LossOp {
 public:
  SoftmaxCrossEntropy(const Layer& layer, const OpOptions& options)
      : batch_(options.batch),
        classes_(layer.input_shape.elements()),
        input_is_relu_(options.input_is_relu),
        losses_(batch_),
        correct_(batch_) {}

  size_t state_floats() const override { return batch_ * classes_; }  // the probabilities

  LossSums Forward(const float* logits, const int32_t* labels, float* state) override {
    ParallelFor(batch_, [&](int64_t n) {
      MUSTER_CHECK(labels[n] >= kNoLabel && labels[n] < classes_);
      ForwardSample(n, logits + n * classes_, labels[n], state + n * classes_);
    });
    LossSums sums;
    for (int64_t n = 0; n < batch_; ++n) {
      sums.loss += losses_[n];
      sums.correct += correct_[n];
    }
    return sums;
  }

  void Backward(float scale, const float* logits, const int32_t* labels, const float* state,
                float* logits_gradient) override {
    ParallelFor(batch_, [&](int64_t n) {
      const float* const probability = state + n * classes_;
      float* const gradient = logits_gradient + n * classes_;
      const float weight = labels[n] == kNoLabel ? 0.0f : scale;
      for (int64_t j = 0; j < classes_; ++j) gradient[j] = weight * probability[j];
      if (labels[n] != kNoLabel) {
        gradient[labels[n]] = scale * (probability[labels[n]] - 1.0f);
      }
      if (!input_is_relu_) return;
      for (int64_t j = 0; j < classes_; ++j) {
        if (!(logits[n * classes_ + j] > 0)) gradient[j] = 0;
      }
    });
  }

 private:
  void ForwardSample(int64_t n, const float* x, int32_t label, float* probability) {
    float largest = x[0];
    bool finite = true;
    for (int64_t j = 0; j < classes_; ++j) {
      largest = std::max(largest, x[j]);
      finite &= std::isfinite(x[j]);
    }
    // Never hidden: an infinity below the maximum would vanish in the sum.
    if (!finite) largest = std::numeric_limits<float>::quiet_NaN();

    double sum = 0;
    int64_t ties = 0;
    for (int64_t j = 0; j < classes_; ++j) {
      probability[j] = std::exp(x[j] - largest);
      sum += probability[j];
      ties += x[j] == largest;
    }
    const float scale = static_cast<float>(1.0 / sum);
    for (int64_t j = 0; j < classes_; ++j) probability[j] *= scale;

    const bool labelled = label != kNoLabel;
    correct_[n] = labelled && ties == 1 && x[label] == largest;
    losses_[n] = labelled ? std::log(sum) - (double{x[label]} - largest)
                          : (finite ? 0.0 : std::numeric_limits<double>::quiet_NaN());
  }

  const int64_t batch_, classes_;
  const bool input_is_relu_;
  std::vector<double> losses_;
  std::vector<uint8_t> correct_;
};

}  // namespace

std::unique_ptr<LossOp> MakeSoftmaxCrossEntropy(const Layer& layer, const OpOptions& options) {
  return std::make_unique<SoftmaxCrossEntropy>(layer, options);
}

}  // namespace muster::cpu
