// Average pooling, channels-last; padding is excluded from the average.
#include <algorithm>

#include "worker/backend/cpu/kernels.h"
#include "worker/backend/cpu/ops.h"
#include "worker/backend/cpu/pool_window.h"

namespace muster::cpu {
namespace {

class AvgPool : public TypedOp<float> {
 public:
  AvgPool(const Layer& layer, const OpOptions& options)
      : options_(options), channels_(layer.input_shape.channels) {
    const auto& spec = std::get<PoolSpec>(layer.spec);
    const Shape &in = layer.input_shape, &out = layer.output_shape;
    rows_ = {in.height, out.height, spec.kernel_height, spec.stride_height, spec.pads.top};
    columns_ = {in.width, out.width, spec.kernel_width, spec.stride_width, spec.pads.left};
  }

  void ForwardTyped(const TypedForwardArgs<float>& args) override {
    ParallelFor(options_.batch * rows_.out, [&](int64_t row) {
      const int64_t n = row / rows_.out, o = row % rows_.out;
      const float* const image = args.input + n * rows_.in * columns_.in * channels_;
      const Range window = rows_.Inputs(o);
      for (int64_t p = 0; p < columns_.out; ++p) {
        float* const y = args.output + (row * columns_.out + p) * channels_;
        const Range columns = columns_.Inputs(p);
        std::fill_n(y, channels_, 0.0f);
        for (int64_t i = window.begin; i < window.end; ++i) {
          for (int64_t j = columns.begin; j < columns.end; ++j) {
            const float* const x = image + (i * columns_.in + j) * channels_;
            for (int64_t c = 0; c < channels_; ++c) y[c] += x[c];
          }
        }
        const float scale = Scale(o, p);
        for (int64_t c = 0; c < channels_; ++c) y[c] *= scale;
      }
    });
  }

  void BackwardTyped(const TypedBackwardArgs<float>& args) override {
    ParallelFor(options_.batch * rows_.in, [&](int64_t row) {
      const int64_t n = row / rows_.in, i = row % rows_.in;
      const float* const image = args.output_gradient + n * rows_.out * columns_.out * channels_;
      const Range rows = rows_.Outputs(i);
      for (int64_t j = 0; j < columns_.in; ++j) {
        const int64_t at = (row * columns_.in + j) * channels_;
        float* const dx = args.input_gradient + at;
        const Range columns = columns_.Outputs(j);
        std::fill_n(dx, channels_, 0.0f);
        for (int64_t o = rows.begin; o < rows.end; ++o) {
          for (int64_t p = columns.begin; p < columns.end; ++p) {
            const float* const dy = image + (o * columns_.out + p) * channels_;
            const float scale = Scale(o, p);
            for (int64_t c = 0; c < channels_; ++c) dx[c] += dy[c] * scale;
          }
        }
        if (!options_.input_is_relu) continue;
        for (int64_t c = 0; c < channels_; ++c) dx[c] = args.input[at + c] > 0 ? dx[c] : 0.0f;
      }
    });
  }

 private:
  // 1 / the number of inputs of output (o, p).
  float Scale(int64_t o, int64_t p) const {
    return 1.0f / static_cast<float>(rows_.Inputs(o).size() * columns_.Inputs(p).size());
  }

  const OpOptions options_;
  const int64_t channels_;
  PoolAxis rows_, columns_;
};

}  // namespace

std::unique_ptr<Op> MakeAvgPool(const Layer& layer, const OpOptions& options) {
  return std::make_unique<AvgPool>(layer, options);
}

}  // namespace muster::cpu
