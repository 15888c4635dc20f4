// The common part of all losses. A Formula has:
//   kKeepsFloats                whether it saves a float for each logit until Backward
//   Loss(x, own, result, kept)  the loss of one sample with logits x, ignored unless result.finite;
//                               own: the index of its label's logit, or negative if there is none
//   Slope(x, kept, j, own)      d loss / d x[j], divided by the factor; own: j is the label's index
//   Factor(scale, outputs)      scale times the common factor of all slopes
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "common/base/error.h"
#include "worker/backend/cpu/kernels.h"
#include "worker/backend/cpu/loss_counts.h"
#include "worker/backend/cpu/ops.h"

namespace muster::cpu {

template <typename Formula>
class LabelLoss final : public LossOp {
 public:
  LabelLoss(const OpRequest& request, const Formula& formula)
      : formula_(formula),
        batch_(request.options.batch),
        outputs_(request.layer.input_shape.elements()),
        first_class_(request.layer.first_class()),
        input_is_relu_(request.options.input_is_relu),
        results_(static_cast<size_t>(batch_)) {}

  size_t state_bytes() const override {
    return Formula::kKeepsFloats ? static_cast<size_t>(batch_ * outputs_) * sizeof(float) : 0;
  }

  void Forward(const LossArgs& args, LossSums* sums, int32_t* predictions) override {
    ParallelFor(batch_, [&](int64_t n) { results_[static_cast<size_t>(n)] = Sample(args, n); });
    *sums = AddUp(results_, predictions);
  }

  void Backward(const LossArgs& args, float scale, void* logits_gradient) override {
    const float factor = formula_.Factor(scale, outputs_);
    ParallelFor(batch_, [&](int64_t n) {
      const std::span<const float> x = Logits(args, n);
      float* const gradient = static_cast<float*>(logits_gradient) + n * outputs_;
      for (int part = 0; part < args.parts(); ++part) {
        const WeightedLabel label = LabelOf(args, batch_, classes(), n, part);
        const int64_t own = label.label - first_class_;
        const float weight = factor * label.weight;
        for (int64_t j = 0; j < outputs_; ++j) {
          const float slope = weight * formula_.Slope(x.data(), Kept(args, n), j, j == own);
          gradient[j] = part == 0 ? slope : gradient[j] + slope;
        }
      }
      for (int64_t j = 0; input_is_relu_ && j < outputs_; ++j) {
        if (!(x[static_cast<size_t>(j)] > 0)) gradient[j] = 0;
      }
    });
  }

 private:
  int64_t classes() const { return outputs_ + first_class_; }
  std::span<const float> Logits(const LossArgs& args, int64_t n) const {
    return {static_cast<const float*>(args.logits) + n * outputs_, static_cast<size_t>(outputs_)};
  }
  float* Kept(const LossArgs& args, int64_t n) const {
    return Formula::kKeepsFloats ? static_cast<float*>(args.state) + n * outputs_ : nullptr;
  }

  SampleResult Sample(const LossArgs& args, int64_t n) const {
    const int32_t label = args.labels[n];
    MUSTER_CHECK(label >= kNoLabel && label < classes());
    const std::span<const float> x = Logits(args, n);
    const float of_both_classes[] = {0, x[0]};
    SampleResult result =
        CountSample(first_class_ == 0 ? x : std::span<const float>(of_both_classes), label);
    for (int part = 0; part < args.parts(); ++part) {
      const WeightedLabel of = LabelOf(args, batch_, classes(), n, part);
      result.loss += of.weight * formula_.Loss(x, of.label - first_class_, result, Kept(args, n));
    }
    if (!result.finite) result.loss = std::numeric_limits<double>::quiet_NaN();
    return result;
  }

  const Formula formula_;
  const int64_t batch_, outputs_, first_class_;
  const bool input_is_relu_;
  std::vector<SampleResult> results_;
};

}  // namespace muster::cpu
