#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/ops.h"

namespace muster::cuda {
namespace {

template <typename T>
class ReflectPadOp : public TypedOp<T> {
 public:
  explicit ReflectPadOp(const OpRequest& request) : TypedOp<T>(request) {
    const auto& spec = std::get<ReflectPadSpec>(request.layer.spec);
    const Shape& in = request.layer.input_shape;
    (void)InputCount(request);
    (void)OutputCount(request);
    shape_ = {static_cast<int>(request.options.batch),
              static_cast<int>(in.height),
              static_cast<int>(in.width),
              static_cast<int>(in.channels),
              static_cast<int>(spec.rows),
              static_cast<int>(spec.columns)};
  }
  void Forward(const ForwardArgs& args) override {
    ReflectPad(this->target(), shape_, this->In(args.input), this->Out(args.output));
  }
  void Backward(const BackwardArgs& args) override {
    ReflectPadGradient(this->target(), shape_, this->In(args.output_gradient),
                       this->Out(args.input_gradient));
  }

 private:
  ReflectPadShape shape_;
};

}  // namespace

std::unique_ptr<Op> Make(const ReflectPadSpec&, const OpRequest& request) {
  return MakeFor<Op, ReflectPadOp>(request.card.activation_type(), request);
}

}  // namespace muster::cuda
