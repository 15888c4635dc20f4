// Concatenates the channels of several images.
#include <algorithm>

#include "worker/backend/cpu/kernels.h"
#include "worker/backend/cpu/ops.h"

namespace muster::cpu {
namespace {

template <typename T>
class Concat : public TypedOp<T> {
 public:
  Concat(const Layer& layer, const OpOptions& options)
      : channels_(std::get<ConcatSpec>(layer.spec).channels),
        out_channels_(layer.output_shape.channels),
        pixels_(options.batch * layer.output_shape.height * layer.output_shape.width) {}

  void ForwardTyped(const TypedForwardArgs<T>& args) override {
    ParallelFor(pixels_, [&](int64_t pixel) {
      T* to = args.output + pixel * out_channels_;
      for (size_t j = 0; j < channels_.size(); ++j) {
        to = std::copy_n(args.inputs[j] + pixel * channels_[j], channels_[j], to);
      }
    });
  }

  void BackwardTyped(const TypedBackwardArgs<T>& args) override {
    ParallelFor(pixels_, [&](int64_t pixel) {
      const T* from = args.output_gradient + pixel * out_channels_;
      for (size_t j = 0; j < channels_.size(); ++j) {
        if (args.input_gradients[j] != nullptr) {
          std::copy_n(from, channels_[j], args.input_gradients[j] + pixel * channels_[j]);
        }
        from += channels_[j];
      }
    });
  }

 private:
  const std::vector<int64_t> channels_;
  const int64_t out_channels_, pixels_;
};

}  // namespace

std::unique_ptr<Op> Make(const ConcatSpec&, const OpRequest& request) {
  return MakeTyped<Concat>(request, request.layer, request.options);
}

}  // namespace muster::cpu
