// Ops with several inputs: add and concat.
#include "common/base/error.h"
#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/ops.h"

namespace muster::cuda {
namespace {

template <typename T>
class AddOp : public TypedOp<T> {
 public:
  explicit AddOp(const OpRequest& request)
      : TypedOp<T>(request),
        count_(InputCount(request)),
        relu_(request.options.activation == Activation::kRelu) {
    MUSTER_CHECK(request.options.activation != Activation::kRelu6);
  }
  void Forward(const ForwardArgs& args) override {
    T* const to = this->Out(args.output);
    const T* sum = this->In(args.inputs[0]);
    for (size_t j = 1; j < args.inputs.size(); ++j) {
      const bool last = j + 1 == args.inputs.size();
      Add(this->target(), to, sum, this->In(args.inputs[j]), relu_ && last, count_);
      sum = to;
    }
  }
  void Backward(const BackwardArgs&) override { MUSTER_CHECK(!"a sum has no backward"); }

 private:
  const int count_;
  const bool relu_;
};

template <typename T>
class ConcatOp : public TypedOp<T> {
 public:
  explicit ConcatOp(const OpRequest& request)
      : TypedOp<T>(request),
        channels_(std::get<ConcatSpec>(request.layer.spec).channels),
        out_channels_(static_cast<int>(request.layer.output_shape.channels)),
        pixels_(OutputCount(request) / out_channels_) {}

  void Forward(const ForwardArgs& args) override {
    T* to = this->Out(args.output);
    for (size_t j = 0; j < channels_.size(); ++j) {
      const auto width = static_cast<int>(channels_[j]);
      CopyRows(this->target(), to, out_channels_, this->In(args.inputs[j]), width, width, pixels_);
      to += width;
    }
  }
  void Backward(const BackwardArgs& args) override {
    const T* from = this->In(args.output_gradient);
    for (size_t j = 0; j < channels_.size(); ++j) {
      const auto width = static_cast<int>(channels_[j]);
      if (T* const to = this->Out(args.input_gradients[j])) {
        CopyRows(this->target(), to, width, from, out_channels_, width, pixels_);
      }
      from += width;
    }
  }

 private:
  const std::vector<int64_t> channels_;
  const int out_channels_, pixels_;
};

}  // namespace

std::unique_ptr<Op> Make(const AddSpec&, const OpRequest& request) {
  return MakeFor<Op, AddOp>(request.card.activation_type(), request);
}
std::unique_ptr<Op> Make(const ConcatSpec&, const OpRequest& request) {
  return MakeFor<Op, ConcatOp>(request.card.activation_type(), request);
}

}  // namespace muster::cuda
