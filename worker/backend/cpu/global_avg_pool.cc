// The mean of each channel over the image.
#include <algorithm>

#include "worker/backend/cpu/kernels.h"
#include "worker/backend/cpu/ops.h"

namespace muster::cpu {
namespace {

class GlobalAvgPool : public FloatOp {
 public:
  GlobalAvgPool(const Layer& layer, const OpOptions& options)
      : batch_(options.batch),
        pixels_(layer.input_shape.height * layer.input_shape.width),
        channels_(layer.input_shape.channels) {}

  void ForwardFloats(const FloatForwardArgs& args) override {
    ParallelFor(batch_, [&](int64_t n) {
      const float* const image = args.input + n * pixels_ * channels_;
      float* const y = args.output + n * channels_;
      std::copy_n(image, channels_, y);
      for (int64_t p = 1; p < pixels_; ++p) {
        const float* const x = image + p * channels_;
#pragma omp simd
        for (int64_t c = 0; c < channels_; ++c) y[c] += x[c];
      }
      for (int64_t c = 0; c < channels_; ++c) y[c] /= static_cast<float>(pixels_);
    });
  }

  void BackwardFloats(const FloatBackwardArgs& args) override {
    const float share = 1.0f / static_cast<float>(pixels_);
    ParallelFor(batch_, [&](int64_t n) {
      const float* const dy = args.output_gradient + n * channels_;
      float* const image = args.input_gradient + n * pixels_ * channels_;
      for (int64_t p = 0; p < pixels_; ++p) {
        float* const dx = image + p * channels_;
#pragma omp simd
        for (int64_t c = 0; c < channels_; ++c) dx[c] = dy[c] * share;
      }
    });
  }

 private:
  const int64_t batch_, pixels_, channels_;
};

}  // namespace

std::unique_ptr<Op> Make(const GlobalAvgPoolSpec&, const OpRequest& request) {
  return std::make_unique<GlobalAvgPool>(request.layer, request.options);
}

}  // namespace muster::cpu
