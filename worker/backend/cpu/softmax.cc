// y_i = exp(x_i) / Σ exp(x_j) over the channels of each pixel; dx_i = y_i (dy_i - Σ dy_j y_j).
#include <algorithm>
#include <cmath>

#include "worker/backend/cpu/kernels.h"
#include "worker/backend/cpu/ops.h"

namespace muster::cpu {
namespace {

class Softmax : public TypedOp<float> {
 public:
  Softmax(const Layer& layer, const OpOptions& options)
      : channels_(layer.input_shape.channels),
        pixels_(options.batch * layer.input_shape.height * layer.input_shape.width) {}

  // The output is not finite if any input of the pixel is NaN or +infinity.
  void ForwardTyped(const TypedForwardArgs<float>& args) override {
    ParallelFor(pixels_, [&](int64_t pixel) {
      const float* const x = args.input + pixel * channels_;
      float* const y = args.output + pixel * channels_;
      const float largest = *std::max_element(x, x + channels_);
      double sum = 0;
      for (int64_t c = 0; c < channels_; ++c) sum += y[c] = std::exp(x[c] - largest);
      const auto scale = static_cast<float>(1 / sum);
      for (int64_t c = 0; c < channels_; ++c) y[c] *= scale;
    });
  }

  void BackwardTyped(const TypedBackwardArgs<float>& args) override {
    ParallelFor(pixels_, [&](int64_t pixel) {
      const int64_t at = pixel * channels_;
      const float *const y = args.output + at, *const dy = args.output_gradient + at;
      float* const dx = args.input_gradient + at;
      double sum = 0;
      for (int64_t c = 0; c < channels_; ++c) sum += double{dy[c]} * y[c];
      for (int64_t c = 0; c < channels_; ++c) dx[c] = y[c] * static_cast<float>(dy[c] - sum);
    });
  }

 private:
  const int64_t channels_, pixels_;
};

}  // namespace

std::unique_ptr<Op> Make(const SoftmaxSpec&, const OpRequest& request) {
  return std::make_unique<Softmax>(request.layer, request.options);
}

}  // namespace muster::cpu
