// y = x / (1 - rate) with probability 1 - rate, else 0. Element i of a sample uses number i mod 4
// of block i / 4 of the stream (seed, kDropout, layer, epoch, sample), which is the same in any
// batch and on any worker.
#include <cstring>

#include "common/base/random.h"
#include "worker/backend/cpu/kernels.h"
#include "worker/backend/cpu/ops.h"

namespace muster::cpu {
namespace {

template <typename T>
class Dropout : public TypedOp<T> {
 public:
  Dropout(const Layer& layer, const OpOptions& options)
      : options_(options),
        elements_(layer.input_shape.elements()),
        rate_(std::get<DropoutSpec>(layer.spec).rate),
        scale_(1.0f / (1.0f - rate_)) {}

  // One byte per element: whether it was kept.
  size_t state_floats() const override { return (options_.batch * elements_ + 3) / 4; }

  void ForwardTyped(const TypedForwardArgs<T>& args) override {
    auto* const kept = reinterpret_cast<uint8_t*>(args.state);
    ParallelFor(options_.batch, [&](int64_t n) {
      DrawKept(args.epoch, args.sample_ids[n], kept + n * elements_);
      Select(args.input + n * elements_, kept + n * elements_, args.output + n * elements_);
    });
  }

  void BackwardTyped(const TypedBackwardArgs<T>& args) override {
    const auto* const kept = reinterpret_cast<const uint8_t*>(args.state);
    ParallelFor(options_.batch, [&](int64_t n) {
      const int64_t at = n * elements_;
      Select(args.output_gradient + at, kept + at, args.input_gradient + at);
      if (!options_.input_is_relu) return;
      // The output may have overwritten the input. The output is above zero exactly where the input
      // was above zero and was not dropped.
      for (int64_t i = at; i < at + elements_; ++i) {
        args.input_gradient[i] = args.output[i] > 0 ? float{args.input_gradient[i]} : 0.0f;
      }
    });
  }

 private:
  void DrawKept(int64_t epoch, int64_t sample, uint8_t* kept) const {
    const RandomStream stream(options_.seed, RandomPurpose::kDropout,
                              static_cast<uint32_t>(options_.layer), static_cast<uint32_t>(epoch),
                              static_cast<uint64_t>(sample));
    for (int64_t i = 0; i < elements_; i += 4) {
      const auto bits = stream.Block(static_cast<uint32_t>(i / 4));
      for (int64_t j = 0; j < 4 && i + j < elements_; ++j)
        kept[i + j] = ToUniform(bits[j]) >= rate_;
    }
  }

  void Select(const T* from, const uint8_t* kept, T* to) const {
    for (int64_t i = 0; i < elements_; ++i) to[i] = kept[i] ? from[i] * scale_ : 0.0f;
  }

  const OpOptions options_;
  const int64_t elements_;
  const float rate_, scale_;
};

}  // namespace

std::unique_ptr<Op> Make(const DropoutSpec&, const OpRequest& request) {
  return MakeTyped<Dropout>(request, request.layer, request.options);
}

}  // namespace muster::cpu
