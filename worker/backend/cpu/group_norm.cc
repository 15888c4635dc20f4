// Normalisation of each sample on its own (Wu, He 2018; Ba, Kiros, Hinton 2016). With the mean m
// and variance v of the n values of a group, and r = 1 / √(v + epsilon):
//   h = (x - m) r,  y = scale h + shift
//   dx = r (scale dy - Σ scale dy / n - h Σ scale dy h / n)
//   dscale = Σ dy h,  dshift = Σ dy
// A block is what is normalised on its own: a sample (group_norm) or a pixel (layer_norm).
//
// The sums of a channel over the block's pixels come first, because channels are adjacent in
// memory, then the sums over a group's channels. Compiled with -ffp-contract=off: the bits depend
// neither on the instruction set nor on the number of threads.
#include <algorithm>
#include <cmath>

#include "worker/backend/cpu/kernels.h"
#include "worker/backend/cpu/ops.h"

namespace muster::cpu {
namespace {

// Σ terms[i], as eight interleaved sums, so that the loop vectorizes with fixed bits.
double Sum(const double* terms, int64_t count) {
  constexpr int64_t kSums = 8;
  double sums[kSums] = {};
  int64_t i = 0;
  for (; i + kSums <= count; i += kSums) {
    for (int64_t j = 0; j < kSums; ++j) sums[j] += terms[i + j];
  }
  for (; i < count; ++i) sums[i % kSums] += terms[i];
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

class GroupNorm : public TypedOp<float> {
 public:
  GroupNorm(const GroupNormSpec& spec, const OpRequest& request)
      : spec_(spec),
        options_(request.options),
        channels_(request.layer.input_shape.channels),
        width_(channels_ / spec.groups),
        pixels_(spec.per_pixel ? 1 : request.layer.input_shape.elements() / channels_),
        blocks_(options_.batch * request.layer.input_shape.elements() / (pixels_ * channels_)),
        parts_(std::min<int64_t>(blocks_, 64)) {}

  // m and r of each group.
  size_t state_floats() const override { return static_cast<size_t>(2 * blocks_ * spec_.groups); }
  size_t scratch_floats() const override {
    return static_cast<size_t>(parts_ * kRowFloats * channels_);
  }

  void ForwardTyped(const TypedForwardArgs<float>& args) override {
    ForParts(args.scratch, [&](int64_t block, const Rows& rows) { Normalise(args, block, rows); });
  }

  void BackwardTyped(const TypedBackwardArgs<float>& args) override {
    ParallelFor(parts_, [&](int64_t part) {
      const Rows rows = RowsOf(args.scratch, part);
      std::fill_n(rows.scale_gradient, channels_, 0.0);
      std::fill_n(rows.shift_gradient, channels_, 0.0);
    });
    ForParts(args.scratch,
             [&](int64_t block, const Rows& rows) { Differentiate(args, block, rows); });
    for (int64_t c = 0; c < channels_; ++c) {
      double scale = 0, shift = 0;
      for (int64_t part = 0; part < parts_; ++part) {
        const Rows rows = RowsOf(args.scratch, part);
        scale += rows.scale_gradient[c];
        shift += rows.shift_gradient[c];
      }
      args.weights_gradient[c] = static_cast<float>(scale);
      args.bias_gradient[c] = static_cast<float>(shift);
    }
  }

 private:
  // The buffers of a part, with a number for each channel. A double counts as two floats.
  struct Rows {
    double *sums, *products, *scale_gradient, *shift_gradient;
    float *mean, *inverse, *slope, *offset, *factor;
  };
  static constexpr int64_t kRowFloats = 4 * 2 + 5 + 1;  // the last one keeps doubles aligned

  Rows RowsOf(float* scratch, int64_t part) const {
    float* const own = scratch + part * kRowFloats * channels_;
    auto* const doubles = reinterpret_cast<double*>(own);
    float* const floats = own + 8 * channels_;
    return {doubles,
            doubles + channels_,
            doubles + 2 * channels_,
            doubles + 3 * channels_,
            floats,
            floats + channels_,
            floats + 2 * channels_,
            floats + 3 * channels_,
            floats + 4 * channels_};
  }

  // Calls body(block, rows) for all blocks. The division into parts depends only on the shape.
  template <typename Body>
  void ForParts(float* scratch, const Body& body) const {
    ParallelFor(parts_, [&](int64_t part) {
      const Rows rows = RowsOf(scratch, part);
      const int64_t end = blocks_ * (part + 1) / parts_;
      for (int64_t block = blocks_ * part / parts_; block < end; ++block) body(block, rows);
    });
  }

  // Calls body(element, channel) for the elements of a block.
  template <typename Body>
  void ForBlock(const Body& body) const {
    for (int64_t pixel = 0; pixel < pixels_; ++pixel) {
#pragma omp simd
      for (int64_t c = 0; c < channels_; ++c) body(pixel * channels_ + c, c);
    }
  }

  // sums[c] = Σ term(element, c) over the pixels of a block.
  template <typename Term>
  void AddUp(double* sums, const Term& term) const {
    std::fill_n(sums, channels_, 0.0);
    ForBlock([=](int64_t i, int64_t c) { sums[c] += term(i, c); });
  }
  double MeanOfGroup(const double* sums, int64_t group) const {
    return Sum(sums + group * width_, width_) / static_cast<double>(width_ * pixels_);
  }
  // Copies the number of each group to its channels.
  void Spread(const float* groups, float* channels) const {
    for (int64_t g = 0; g < spec_.groups; ++g)
      std::fill_n(channels + g * width_, width_, groups[g]);
  }

  float* Means(float* state, int64_t block) const { return state + 2 * block * spec_.groups; }
  float* Inverses(float* state, int64_t block) const { return Means(state, block) + spec_.groups; }

  void Normalise(const TypedForwardArgs<float>& args, int64_t block, const Rows& rows) const {
    const float* const x = args.input + block * pixels_ * channels_;
    float* const y = args.output + block * pixels_ * channels_;
    float *const means = Means(args.state, block), *const inverses = Inverses(args.state, block);
    AddUp(rows.sums, [=](int64_t i, int64_t) { return double{x[i]}; });
    for (int64_t g = 0; g < spec_.groups; ++g) {
      means[g] = static_cast<float>(MeanOfGroup(rows.sums, g));
    }
    Spread(means, rows.mean);
    AddUp(rows.sums, [x, mean = rows.mean](int64_t i, int64_t c) {
      const double distance = x[i] - mean[c];
      return distance * distance;
    });
    for (int64_t g = 0; g < spec_.groups; ++g) {
      inverses[g] =
          static_cast<float>(1 / std::sqrt(MeanOfGroup(rows.sums, g) + double{spec_.epsilon}));
    }
    Spread(inverses, rows.inverse);
    const bool relu = options_.activation == Activation::kRelu;
    ForBlock([=, mean = rows.mean, inverse = rows.inverse, scale = args.weights, shift = args.bias](
                 int64_t i, int64_t c) {
      const float z = (x[i] - mean[c]) * inverse[c] * scale[c] + shift[c];
      y[i] = relu && z < 0 ? 0.0f : z;  // NaN propagates
    });
  }

  void Differentiate(const TypedBackwardArgs<float>& args, int64_t block, const Rows& rows) const {
    const float* const x = args.input + block * pixels_ * channels_;
    const float* const dy = args.output_gradient + block * pixels_ * channels_;
    Spread(Means(args.state, block), rows.mean);
    Spread(Inverses(args.state, block), rows.inverse);
    AddUp(rows.sums, [=](int64_t i, int64_t) { return double{dy[i]}; });
    AddUp(rows.products, [=, mean = rows.mean, inverse = rows.inverse](int64_t i, int64_t c) {
      return double{dy[i]} * ((x[i] - mean[c]) * inverse[c]);
    });
    for (int64_t c = 0; c < channels_; ++c) {
      rows.shift_gradient[c] += rows.sums[c];
      rows.scale_gradient[c] += rows.products[c];
      rows.sums[c] *= args.weights[c];
      rows.products[c] *= args.weights[c];
    }
    if (!options_.input_gradient) return;
    for (int64_t g = 0; g < spec_.groups; ++g) {
      const double inverse = rows.inverse[g * width_];
      const auto offset = static_cast<float>(inverse * MeanOfGroup(rows.sums, g));
      const auto factor = static_cast<float>(inverse * inverse * MeanOfGroup(rows.products, g));
      std::fill_n(rows.offset + g * width_, width_, offset);
      std::fill_n(rows.factor + g * width_, width_, factor);
    }
    for (int64_t c = 0; c < channels_; ++c) rows.slope[c] = rows.inverse[c] * args.weights[c];
    float* const dx = args.input_gradient + block * pixels_ * channels_;
    ForBlock([=, mean = rows.mean, slope = rows.slope, offset = rows.offset, factor = rows.factor](
                 int64_t i, int64_t c) {
      dx[i] = slope[c] * dy[i] - offset[c] - (x[i] - mean[c]) * factor[c];
    });
  }

  const GroupNormSpec spec_;
  const OpOptions options_;
  const int64_t channels_, width_, pixels_, blocks_, parts_;
};

}  // namespace

std::unique_ptr<Op> Make(const GroupNormSpec& spec, const OpRequest& request) {
  return std::make_unique<GroupNorm>(spec, request);
}

}  // namespace muster::cpu
