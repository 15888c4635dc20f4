// The mean of each channel over the image.
#include <algorithm>

#include "worker/backend/cpu/kernels.h"
#include "worker/backend/cpu/ops.h"

namespace muster::cpu {
namespace {

template <typename T>
class GlobalAvgPool : public TypedOp<T> {
 public:
  GlobalAvgPool(const Layer& layer, const OpOptions& options)
      : batch_(options.batch),
        pixels_(layer.input_shape.height * layer.input_shape.width),
        channels_(layer.input_shape.channels) {}

  void ForwardTyped(const TypedForwardArgs<T>& args) override {
    ParallelFor(batch_, [&](int64_t n) {
      const T* const image = args.input + n * pixels_ * channels_;
      for (int64_t first = 0; first < channels_; first += kBlock) {
        const int64_t count = std::min(kBlock, channels_ - first);
        float sums[kBlock];
        std::copy_n(image + first, count, sums);
        for (int64_t p = 1; p < pixels_; ++p) {
          const T* const x = image + p * channels_ + first;
#pragma omp simd
          for (int64_t c = 0; c < count; ++c) sums[c] += x[c];
        }
        T* const y = args.output + n * channels_ + first;
        for (int64_t c = 0; c < count; ++c) y[c] = sums[c] / static_cast<float>(pixels_);
      }
    });
  }

  void BackwardTyped(const TypedBackwardArgs<T>& args) override {
    const float share = 1.0f / static_cast<float>(pixels_);
    ParallelFor(batch_, [&](int64_t n) {
      const T* const dy = args.output_gradient + n * channels_;
      T* const image = args.input_gradient + n * pixels_ * channels_;
      for (int64_t p = 0; p < pixels_; ++p) {
        T* const dx = image + p * channels_;
#pragma omp simd
        for (int64_t c = 0; c < channels_; ++c) dx[c] = dy[c] * share;
      }
    });
  }

 private:
  static constexpr int64_t kBlock = 64;  // channels whose sums are held at once

  const int64_t batch_, pixels_, channels_;
};

}  // namespace

std::unique_ptr<Op> Make(const GlobalAvgPoolSpec&, const OpRequest& request) {
  return MakeTyped<GlobalAvgPool>(request, request.layer, request.options);
}

}  // namespace muster::cpu
