// Batch normalization of channels-last activations, fused with a following sum and activation.
// Training uses one pass for the statistics and one that normalizes; backward uses one pass for
// each channel's two sums and one that writes the input's gradient.
//
// With x̂ = (x - mean) / √(variance + epsilon), n values per channel, dy the gradient of
// z = scale x̂ + shift:
//   d scale = Σ dy x̂,  d shift = Σ dy,
//   dx = scale / √(variance + epsilon) (dy - Σ dy / n - x̂ Σ dy x̂ / n)     (Ioffe, Szegedy 2015)
#include <algorithm>
#include <cmath>

#include "worker/backend/cpu/batch_statistics.h"
#include "worker/backend/cpu/channel_strips.h"
#include "worker/backend/cpu/kernels.h"
#include "worker/backend/cpu/ops.h"
#include "worker/backend/cpu/row_parts.h"

namespace muster::cpu {
namespace {

// The transform of each channel: z = (x - mean) slope + shift. Forward and backward must use the
// same expression, so that backward recomputes the same sign of z.
struct Affine {
  const float *mean, *slope, *shift;

  template <typename Vec>
  Vec Apply(const Vec& x, int64_t c) const {
    return (x - Load<Vec>(mean + c)) * Load<Vec>(slope + c) + Load<Vec>(shift + c);
  }
};

// NaN propagates.
template <Activation kActivation, typename Vec>
Vec Activate(const Vec& z) {
  if constexpr (kActivation == Activation::kNone) return z;
  const Vec positive = z < 0 ? Vec{} : z;
  if constexpr (kActivation == Activation::kRelu) return positive;
  return positive > 6 ? Vec{} + 6 : positive;
}

// dy where the activation passed its argument y, else zero. `y` may also be the activation's
// result.
template <Activation kActivation, typename Vec>
Vec Mask(const Vec& dy, const Vec& y) {
  if constexpr (kActivation == Activation::kNone) return dy;
  const Vec above = y > 0 ? dy : Vec{};
  if constexpr (kActivation == Activation::kRelu) return above;
  return y < 6 ? above : Vec{};
}

template <typename T>
class BatchNorm : public TypedOp<T> {
 public:
  BatchNorm(const Layer& layer, const OpOptions& options)
      : options_(options),
        spec_(std::get<BatchNormSpec>(layer.spec)),
        channels_(layer.input_shape.channels),
        rows_(options.batch * layer.input_shape.height * layer.input_shape.width),
        stride_((channels_ + 15) / 16 * 16),
        frozen_(layer.frozen),
        parts_(rows_, channels_),
        statistics_(rows_, channels_) {}

  size_t state_floats() const override { return 4 * stride_; }
  size_t scratch_floats() const override {
    const size_t sums = parts_.count() * 2 * stride_ * sizeof(double) / sizeof(float);
    return std::max(statistics_.scratch_floats(), sums + 3 * stride_);
  }

  void ForwardTyped(const TypedForwardArgs<T>& args) override {
    const State state = StateOf(args.state);
    if (options_.mode == Mode::kTraining && !frozen_) {
      statistics_.Run(args.input, args.scratch, state.mean, state.variance);
    } else {
      std::copy_n(args.running_mean, channels_, state.mean);
      std::copy_n(args.running_variance, channels_, state.variance);
    }
    for (int64_t c = 0; c < channels_; ++c) {
      state.inverse[c] = 1.0f / std::sqrt(state.variance[c] + spec_.epsilon);
      state.slope[c] = args.weights[c] * state.inverse[c];
    }
    switch (options_.activation) {
      case Activation::kNone:
        return Normalise<Activation::kNone>(args, state);
      case Activation::kRelu:
        return Normalise<Activation::kRelu>(args, state);
      case Activation::kRelu6:
        return Normalise<Activation::kRelu6>(args, state);
    }
  }

  void BackwardTyped(const TypedBackwardArgs<T>& args) override {
    switch (options_.activation) {
      case Activation::kNone:
        return BackwardThrough<Activation::kNone>(args);
      case Activation::kRelu:
        return BackwardThrough<Activation::kRelu>(args);
      case Activation::kRelu6:
        return BackwardThrough<Activation::kRelu6>(args);
    }
  }

 private:
  // One number for each channel.
  struct State {
    float *mean, *variance, *inverse, *slope;  // inverse: 1 / √(variance + epsilon)
  };
  State StateOf(float* state) const {
    return {state, state + stride_, state + 2 * stride_, state + 3 * stride_};
  }

  template <Activation kActivation>
  void Normalise(const TypedForwardArgs<T>& args, const State& state) const {
    const Affine affine{state.mean, state.slope, args.bias};
    const T* const added = options_.fuse_add ? args.inputs[1] : nullptr;
    ForRows([&](int64_t row) {
      const T* const x = args.input + row * channels_;
      T* const y = args.output + row * channels_;
      if (added == nullptr) {
        ForChannelVectors(channels_, [&]<typename Vec>(int64_t c) {
          Store(y + c, Activate<kActivation>(affine.Apply(Load<Vec>(x + c), c)));
        });
      } else {
        const T* const a = added + row * channels_;
        ForChannelVectors(channels_, [&]<typename Vec>(int64_t c) {
          Store(y + c, Activate<kActivation>(affine.Apply(Load<Vec>(x + c), c) + Load<Vec>(a + c)));
        });
      }
    });
  }

  // Calls `body` for every row, in parallel; rows are independent.
  template <typename Body>
  void ForRows(const Body& body) const {
    ParallelFor(parts_.count(), [&](int64_t part) {
      const Range range = parts_.Part(part);
      for (int64_t row = range.begin; row < range.end; ++row) body(row);
    });
  }

  // Backward must know where the activation passed z. If another value was added, it checks the
  // activation's result; otherwise it normalizes again, which costs no memory access. The gradient
  // of z is also the gradient of the added value: if that is needed, the first pass writes it and
  // the second reads it.
  template <Activation kActivation>
  void BackwardThrough(const TypedBackwardArgs<T>& args) const {
    constexpr bool kActivates = kActivation != Activation::kNone;
    const State state = StateOf(args.state);
    const Affine affine{state.mean, state.slope, args.bias};
    const auto gradient_of_z = [&]<typename Vec>(int64_t row, int64_t c) {
      const int64_t at = row * channels_ + c;
      const Vec dy = Load<Vec>(args.output_gradient + at);
      return Mask<kActivation>(dy, affine.Apply(Load<Vec>(args.input + at), c));
    };
    if (!options_.fuse_add || !kActivates) return RunBackward(args, state, gradient_of_z);

    const auto from_output = [&]<typename Vec>(int64_t row, int64_t c) {
      const int64_t at = row * channels_ + c;
      return Mask<kActivation>(Load<Vec>(args.output_gradient + at), Load<Vec>(args.output + at));
    };
    T* const added = args.input_gradients[1];
    if (added == nullptr) return RunBackward(args, state, from_output);
    const auto writing = [&]<typename Vec>(int64_t row, int64_t c) {
      const Vec dz = from_output.template operator()<Vec>(row, c);
      Store(added + row * channels_ + c, dz);
      return dz;
    };
    const auto written = [&]<typename Vec>(int64_t row, int64_t c) {
      return Load<Vec>(added + row * channels_ + c);
    };
    AddUp(args, state, writing);
    WriteInputGradient(args, state, written);
  }

  template <typename Gradient>
  void RunBackward(const TypedBackwardArgs<T>& args, const State& state,
                   const Gradient& gradient) const {
    AddUp(args, state, gradient);
    WriteInputGradient(args, state, gradient);
  }

  // Computes each channel's sums Σ dz and Σ dz (x - mean), and from these the gradients of the
  // variables. Also reports the statistics. Leaves in scratch what WriteInputGradient needs.
  template <typename Gradient>
  void AddUp(const TypedBackwardArgs<T>& args, const State& state, const Gradient& gradient) const {
    auto* const sums = reinterpret_cast<double*>(args.scratch);
    ParallelFor(parts_.count(), [&](int64_t part) {
      double* const sum = sums + part * 2 * stride_;
      double* const product = sum + stride_;
      std::fill_n(sum, 2 * stride_, 0.0);
      parts_.ForBlocks(part, [&](int64_t row, int64_t rows) {
        ForChannelStrips<2>(channels_, [&]<typename Vec, int V>(int64_t c) {
          AddStrip<Vec, V>(args.input, state.mean, gradient, row, rows, c, sum, product);
        });
      });
    });
    for (int64_t part = 1; part < parts_.count(); ++part) {
      for (int64_t c = 0; c < 2 * stride_; ++c) sums[c] += sums[part * 2 * stride_ + c];
    }
    const Gradients gradients = GradientsIn(args.scratch);
    const double n = static_cast<double>(rows_);
    const double unbiased = spec_.unbiased && rows_ > 1 ? n / (n - 1) : 1;
    for (int64_t c = 0; c < channels_; ++c) {
      const double sum = sums[c], product = sums[stride_ + c], inverse = state.inverse[c];
      args.bias_gradient[c] = static_cast<float>(sum);
      args.weights_gradient[c] = static_cast<float>(product * inverse);
      gradients.mean[c] = frozen_ ? 0 : static_cast<float>(sum / n);
      gradients.slope[c] = frozen_ ? 0 : static_cast<float>(product * inverse * inverse / n);
      args.mean_statistic[c] = state.mean[c] * args.statistic_weight;
      args.variance_statistic[c] =
          static_cast<float>(state.variance[c] * unbiased) * args.statistic_weight;
    }
  }

  template <typename Vec, int V, typename Gradient>
  void AddStrip(const T* input, const float* mean, const Gradient& gradient, int64_t row,
                int64_t rows, int64_t c, double* sum, double* product) const {
    Vec m[V], s[V], p[V];
    for (int v = 0; v < V; ++v) {
      m[v] = Load<Vec>(mean + c + v * kWidth<Vec>);
      s[v] = p[v] = Vec{};
    }
    for (int64_t r = row; r < row + rows; ++r) {
      for (int v = 0; v < V; ++v) {
        const int64_t at = c + v * kWidth<Vec>;
        const Vec dz = gradient.template operator()<Vec>(r, at);
        s[v] += dz;
        p[v] += dz * (Load<Vec>(input + r * channels_ + at) - m[v]);
      }
    }
    for (int v = 0; v < V; ++v) {
      AddTo(sum + c + v * kWidth<Vec>, s[v]);
      AddTo(product + c + v * kWidth<Vec>, p[v]);
    }
  }

  template <typename Gradient>
  void WriteInputGradient(const TypedBackwardArgs<T>& args, const State& state,
                          const Gradient& gradient) const {
    if (!options_.input_gradient) return;
    const Gradients g = GradientsIn(args.scratch);
    ForRows([&](int64_t row) {
      const T* const x = args.input + row * channels_;
      T* const dx = args.input_gradient + row * channels_;
      ForChannelVectors(channels_, [&]<typename Vec>(int64_t c) {
        const Vec distance = Load<Vec>(x + c) - Load<Vec>(state.mean + c);
        const Vec dz = gradient.template operator()<Vec>(row, c);
        Store(dx + c, Load<Vec>(state.slope + c) *
                          (dz - Load<Vec>(g.mean + c) - distance * Load<Vec>(g.slope + c)));
      });
    });
  }

  // Stored after the sums of the parts: Σ dz / n, and Σ dz (x - mean) / (n (variance + epsilon)).
  struct Gradients {
    float *mean, *slope;
  };
  Gradients GradientsIn(float* scratch) const {
    float* const at = scratch + parts_.count() * 4 * stride_;
    return {at, at + stride_};
  }

  const OpOptions options_;
  const BatchNormSpec spec_;
  const int64_t channels_, rows_, stride_;
  const bool frozen_;  // normalizes with the running statistics in training, too
  const RowParts parts_;
  const BatchStatistics statistics_;
};

}  // namespace

std::unique_ptr<Op> Make(const BatchNormSpec&, const OpRequest& request) {
  return MakeTyped<BatchNorm>(request, request.layer, request.options);
}

}  // namespace muster::cpu
