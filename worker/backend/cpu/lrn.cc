// Local response normalisation across channels (Krizhevsky et al. 2012):
//   y_c  = x_c n_c^-β                 with n_c = bias + α Σ_{|j-c| <= r} x_j²
//   dx_c = dy_c n_c^-β - 2 α β x_c Σ_{|j-c| <= r} dy_j y_j / n_j
//
// oneDNN has fast kernels only for r = 2. Backward recomputes n instead of loading it: the window
// sum is cheaper than the memory access. β = 3/4, the usual value, needs two square roots and a
// division; other powers use std::pow.
#include <omp.h>

#include <algorithm>
#include <cmath>

#include "worker/backend/cpu/kernels.h"
#include "worker/backend/cpu/ops.h"

namespace muster::cpu {
namespace {

// to[c] = Σ_{|j-c| <= radius} row[j]. The radii of AlexNet (2) and of TensorFlow's tutorial (4) get
// loops of constant length.
template <int kRadius>
inline void WindowSum(const float* row, int64_t channels, int64_t radius, float* __restrict to) {
  if constexpr (kRadius > 0) {
    for (int64_t c = 0; c < channels; ++c) {
      float sum = row[c - kRadius];
#pragma GCC unroll 16
      for (int j = 1 - kRadius; j <= kRadius; ++j) sum += row[c + j];
      to[c] = sum;
    }
  } else {
    std::fill_n(to, channels, 0.0f);
    for (int64_t j = -radius; j <= radius; ++j) {
      for (int64_t c = 0; c < channels; ++c) to[c] += row[c + j];
    }
  }
}

// power[c] = n^-β and inverse[c] = 1 / n, where n = bias + alpha * sum[c].
inline void Powers(const LrnSpec& spec, const float* __restrict sum, int64_t channels,
                   float* __restrict power, float* __restrict inverse) {
  if (spec.beta == 0.75f) {
    for (int64_t c = 0; c < channels; ++c) {
      const float i = 1.0f / (spec.bias + spec.alpha * sum[c]);
      const float root = std::sqrt(i);
      inverse[c] = i;
      power[c] = root * std::sqrt(root);
    }
  } else {
    for (int64_t c = 0; c < channels; ++c) {
      const float n = spec.bias + spec.alpha * sum[c];
      inverse[c] = 1.0f / n;
      power[c] = std::pow(n, -spec.beta);
    }
  }
}

template <typename T>
class Lrn : public TypedOp<T> {
 public:
  Lrn(const Layer& layer, const OpOptions& options)
      : spec_(std::get<LrnSpec>(layer.spec)),
        input_is_relu_(options.input_is_relu),
        channels_(layer.input_shape.channels),
        pixels_(options.batch * layer.input_shape.height * layer.input_shape.width),
        radius_(std::min(spec_.depth_radius, channels_)),  // no window reaches further
        padded_((channels_ + 2 * radius_ + 15) / 16 * 16),
        threads_(omp_get_max_threads()) {}

  size_t scratch_floats() const override { return threads_ * (2 * padded_ + 3 * padded_); }

  void ForwardTyped(const TypedForwardArgs<T>& args) override {
    ForPixels(args.scratch, [&](auto radius, int64_t pixel, const Rows& rows) {
      const T* const x = args.input + pixel * channels_;
      T* const y = args.output + pixel * channels_;
      Normalise<radius.value>(x, rows);
      for (int64_t c = 0; c < channels_; ++c) y[c] = x[c] * rows.power[c];
    });
  }

  void BackwardTyped(const TypedBackwardArgs<T>& args) override {
    const float factor = 2 * spec_.alpha * spec_.beta;
    ForPixels(args.scratch, [&](auto radius, int64_t pixel, const Rows& rows) {
      const T* const x = args.input + pixel * channels_;
      const T* const dy = args.output_gradient + pixel * channels_;
      T* const dx = args.input_gradient + pixel * channels_;
      Normalise<radius.value>(x, rows);
      for (int64_t c = 0; c < channels_; ++c) {
        rows.terms[c] = dy[c] * x[c] * rows.power[c] * rows.inverse[c];
      }
      WindowSum<radius.value>(rows.terms, channels_, radius_, rows.sum);
      for (int64_t c = 0; c < channels_; ++c) {
        const float gradient = dy[c] * rows.power[c] - factor * x[c] * rows.sum[c];
        dx[c] = !input_is_relu_ || x[c] > 0 ? gradient : 0.0f;
      }
    });
  }

 private:
  // The buffers of a thread for one pixel's channels. `squares` and `terms` have radius_ zeros on
  // both sides, so that windows at the edges need no special case.
  struct Rows {
    float *squares, *terms, *sum, *power, *inverse;
  };

  // Calls body(radius, pixel, rows) for every pixel; radius.value is 0 for radii without a special
  // loop.
  template <typename Body>
  void ForPixels(float* scratch, const Body& body) const {
    switch (radius_) {
      case 2:
        return ForPixels(std::integral_constant<int, 2>(), scratch, body);
      case 4:
        return ForPixels(std::integral_constant<int, 4>(), scratch, body);
      default:
        return ForPixels(std::integral_constant<int, 0>(), scratch, body);
    }
  }

  template <typename Radius, typename Body>
  void ForPixels(Radius radius, float* scratch, const Body& body) const {
    InTeam(static_cast<int>(threads_), [&](int thread) {
      float* const own = scratch + thread * 5 * padded_;
      std::fill_n(own, 2 * padded_, 0.0f);
      const Rows rows = {own + radius_, own + padded_ + radius_, own + 2 * padded_,
                         own + 3 * padded_, own + 4 * padded_};
#pragma omp for schedule(static) nowait
      for (int64_t pixel = 0; pixel < pixels_; ++pixel) body(radius, pixel, rows);
    });
  }

  template <int kRadius>
  void Normalise(const T* x, const Rows& rows) const {
    for (int64_t c = 0; c < channels_; ++c) rows.squares[c] = float{x[c]} * x[c];
    WindowSum<kRadius>(rows.squares, channels_, radius_, rows.sum);
    Powers(spec_, rows.sum, channels_, rows.power, rows.inverse);
  }

  const LrnSpec spec_;
  const bool input_is_relu_;
  const int64_t channels_, pixels_, radius_, padded_, threads_;
};

}  // namespace

std::unique_ptr<Op> Make(const LrnSpec&, const OpRequest& request) {
  return MakeTyped<Lrn>(request, request.layer, request.options);
}

}  // namespace muster::cpu
