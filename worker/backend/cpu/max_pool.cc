// Max pooling, channels-last.
//
// Forward saves, for each output, the index of its maximum within the window (the first of equal
// ones). Backward iterates over the inputs and adds the gradients of the outputs that chose them:
// every gradient is written once, nothing needs clearing, and threads write disjoint data.
#include <limits>

#include "worker/backend/cpu/kernels.h"
#include "worker/backend/cpu/ops.h"
#include "worker/backend/cpu/pool_window.h"
#include "worker/backend/cpu/vec.h"

namespace muster::cpu {
namespace {

// `Index` is uint8_t for windows of fewer than 255 places. Its largest value means that no input
// receives the gradient.
template <typename T, typename Index>
class MaxPool : public TypedOp<T> {
 public:
  MaxPool(const Layer& layer, const OpOptions& options)
      : options_(options), channels_(layer.input_shape.channels) {
    const auto& spec = std::get<PoolSpec>(layer.spec);
    const Shape &in = layer.input_shape, &out = layer.output_shape;
    rows_ = {in.height, out.height, spec.kernel_height, spec.stride_height, spec.pads.top};
    columns_ = {in.width, out.width, spec.kernel_width, spec.stride_width, spec.pads.left};
  }

  size_t state_floats() const override {
    if (options_.mode == Mode::kInference) return 0;
    const size_t bytes = options_.batch * rows_.out * columns_.out * channels_ * sizeof(Index);
    return (bytes + 3) / 4;
  }

  void ForwardTyped(const TypedForwardArgs<T>& args) override {
    auto* const indices = reinterpret_cast<Index*>(args.state);
    ParallelFor(options_.batch * rows_.out, [&](int64_t row) {
      const int64_t n = row / rows_.out, o = row % rows_.out;
      const T* const image = args.input + n * rows_.in * columns_.in * channels_;
      for (int64_t p = 0; p < columns_.out; ++p) {
        const int64_t at = (row * columns_.out + p) * channels_;
        Index* const index = options_.mode == Mode::kTraining ? indices + at : nullptr;
        int64_t c = 0;
        for (; c + 4 * kLanes <= channels_; c += 4 * kLanes) {
          Maximum<4>(image, o, p, c, args.output + at, index);
        }
        for (; c + kLanes <= channels_; c += kLanes) {
          Maximum<1>(image, o, p, c, args.output + at, index);
        }
        for (; c < channels_; ++c) MaximumOfOne(image, o, p, c, args.output + at, index);
      }
    });
  }

  void BackwardTyped(const TypedBackwardArgs<T>& args) override {
    const auto* const indices = reinterpret_cast<const Index*>(args.state);
    ParallelFor(options_.batch * rows_.in, [&](int64_t row) {
      const int64_t n = row / rows_.in, i = row % rows_.in;
      const int64_t image = n * rows_.out * columns_.out * channels_;
      for (int64_t j = 0; j < columns_.in; ++j) {
        T* const dx = args.input_gradient + (row * columns_.in + j) * channels_;
        int64_t c = 0;
        for (; c + 4 * kLanes <= channels_; c += 4 * kLanes) {
          Gather<4>(args.output_gradient + image, indices + image, i, j, c, dx);
        }
        for (; c + kLanes <= channels_; c += kLanes) {
          Gather<1>(args.output_gradient + image, indices + image, i, j, c, dx);
        }
        for (; c < channels_; ++c) {
          GatherOne(args.output_gradient + image, indices + image, i, j, c, dx);
        }
      }
    });
  }

 private:
  static constexpr Index kNowhere = std::numeric_limits<Index>::max();

  // Calls body(offset of the input, its index in the window) for the inputs of output (o, p).
  template <typename Body>
  inline void ForInputs(int64_t o, int64_t p, const Body& body) const {
    const Range rows = rows_.Inputs(o), columns = columns_.Inputs(p);
    for (int64_t i = rows.begin; i < rows.end; ++i) {
      const int64_t place = (i - rows_.Start(o)) * columns_.kernel - columns_.Start(p);
      for (int64_t j = columns.begin; j < columns.end; ++j) {
        body((i * columns_.in + j) * channels_, static_cast<int32_t>(place + j));
      }
    }
  }

  // Calls body(offset of the output, index in its window) for the outputs of input (i, j).
  template <typename Body>
  inline void ForOutputs(int64_t i, int64_t j, const Body& body) const {
    const Range rows = rows_.Outputs(i), columns = columns_.Outputs(j);
    for (int64_t o = rows.begin; o < rows.end; ++o) {
      const int64_t place = (i - rows_.Start(o)) * columns_.kernel + j;
      for (int64_t p = columns.begin; p < columns.end; ++p) {
        body((o * columns_.out + p) * channels_, static_cast<int32_t>(place - columns_.Start(p)));
      }
    }
  }

  // Computes kVectors * 8 channels, starting with channel `c`.
  template <int kVectors>
  void Maximum(const T* image, int64_t o, int64_t p, int64_t c, T* output, Index* index) const {
    FloatVec best[kVectors];
    IntVec place_of_best[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      best[v] = Broadcast(-std::numeric_limits<float>::infinity());
      place_of_best[v] = IntVec{} + static_cast<int32_t>(kNowhere);
    }
    ForInputs(o, p, [&](int64_t at, int32_t place) {
      for (int v = 0; v < kVectors; ++v) {
        const FloatVec x = LoadFloats(image + at + c + v * kLanes);
        const IntVec better = (x > best[v]) | (x != x);  // a NaN wins and stays
        best[v] = better ? x : best[v];
        place_of_best[v] = better ? IntVec{} + place : place_of_best[v];
      }
    });
    for (int v = 0; v < kVectors; ++v) {
      Store(output + c + v * kLanes, best[v]);
      if (index == nullptr) continue;
      const IntVec nowhere = IntVec{} + static_cast<int32_t>(kNowhere);
      if (options_.input_is_relu) place_of_best[v] = best[v] > 0 ? place_of_best[v] : nowhere;
      StoreIndices(index + c + v * kLanes, place_of_best[v]);
    }
  }

  void MaximumOfOne(const T* image, int64_t o, int64_t p, int64_t c, T* output,
                    Index* index) const {
    float best = -std::numeric_limits<float>::infinity();
    Index place_of_best = kNowhere;
    ForInputs(o, p, [&](int64_t at, int32_t place) {
      const float x = image[at + c];
      if (!(x > best) && x == x) return;
      best = x;
      place_of_best = static_cast<Index>(place);
    });
    output[c] = best;
    if (index != nullptr)
      index[c] = options_.input_is_relu && !(best > 0) ? kNowhere : place_of_best;
  }

  template <int kVectors>
  void Gather(const T* dy, const Index* indices, int64_t i, int64_t j, int64_t c, T* dx) const {
    FloatVec sum[kVectors] = {};
    ForOutputs(i, j, [&](int64_t at, int32_t place) {
      for (int v = 0; v < kVectors; ++v) {
        const IntVec chosen = LoadIndices(indices + at + c + v * kLanes) == place;
        sum[v] += chosen ? LoadFloats(dy + at + c + v * kLanes) : FloatVec{};
      }
    });
    for (int v = 0; v < kVectors; ++v) Store(dx + c + v * kLanes, sum[v]);
  }

  void GatherOne(const T* dy, const Index* indices, int64_t i, int64_t j, int64_t c, T* dx) const {
    float sum = 0;
    ForOutputs(i, j, [&](int64_t at, int32_t place) {
      if (static_cast<int32_t>(indices[at + c]) == place) sum += dy[at + c];
    });
    dx[c] = sum;
  }

  const OpOptions options_;
  const int64_t channels_;
  PoolAxis rows_, columns_;
};

template <typename T>
using SmallMaxPool = MaxPool<T, uint8_t>;
template <typename T>
using LargeMaxPool = MaxPool<T, int32_t>;

}  // namespace

std::unique_ptr<Op> Make(const PoolSpec& spec, const OpRequest& request) {
  if (spec.kind == PoolSpec::Kind::kAverage) return MakeAvgPool(request.layer, request.options);
  if (spec.kernel_height * spec.kernel_width < std::numeric_limits<uint8_t>::max()) {
    return MakeTyped<SmallMaxPool>(request, request.layer, request.options);
  }
  return MakeTyped<LargeMaxPool>(request, request.layer, request.options);
}

}  // namespace muster::cpu
