// mean_squared_error over one output: loss = (x - t)², with the gradient 2 (x - t), where the label
// holds the bits of the float t.
#include <bit>

#include "worker/backend/cpu/loss_counts.h"
#include "worker/backend/cpu/ops.h"

namespace muster::cpu {
namespace {

class ValueError final : public LossOp {
 public:
  explicit ValueError(const OpOptions& options)
      : batch_(options.batch), input_is_relu_(options.input_is_relu) {}

  size_t state_bytes() const override { return 0; }

  void Forward(const LossArgs& args, LossSums* sums, int32_t* predictions) override {
    const auto* const x = static_cast<const float*>(args.logits);
    *sums = {};
    for (int64_t n = 0; n < batch_; ++n) {
      const double difference = Difference(x[n], args.labels[n]);
      sums->Add(difference * difference, 0);
      if (predictions != nullptr) predictions[n] = 0;
    }
  }
  void Backward(const LossArgs& args, float scale, void* logits_gradient) override {
    const auto* const x = static_cast<const float*>(args.logits);
    auto* const gradient = static_cast<float*>(logits_gradient);
    for (int64_t n = 0; n < batch_; ++n) {
      const auto difference = static_cast<float>(Difference(x[n], args.labels[n]));
      gradient[n] = input_is_relu_ && !(x[n] > 0) ? 0.0f : 2.0f * scale * difference;
    }
  }

 private:
  // Returns NaN, not 0, if x is not finite.
  static double Difference(float x, int32_t label) {
    return double{x} - (label == kNoLabel ? x : std::bit_cast<float>(label));
  }

  const int64_t batch_;
  const bool input_is_relu_;
};

}  // namespace

std::unique_ptr<LossOp> MakeValueError(const OpOptions& options) {
  return std::make_unique<ValueError>(options);
}

}  // namespace muster::cpu
