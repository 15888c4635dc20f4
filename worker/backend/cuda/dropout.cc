#include "common/base/random.h"
#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/ops.h"

namespace muster::cuda {
namespace {

template <typename T>
class DropoutOp : public TypedOp<T> {
 public:
  explicit DropoutOp(const OpRequest& request)
      : TypedOp<T>(request),
        rate_(std::get<DropoutSpec>(request.layer.spec).rate),
        elements_(static_cast<int>(request.layer.input_shape.elements())),
        count_(InputCount(request)) {}

  // One byte per element: whether it was kept.
  size_t state_bytes() const override { return static_cast<size_t>(count_); }

  void Forward(const ForwardArgs& args) override {
    const RandomStream stream(this->options_.seed, RandomPurpose::kDropout,
                              static_cast<uint32_t>(this->options_.layer), 0, 0);
    const auto key = stream.key();
    const DropoutDraw draw{{key[0], key[1]}, static_cast<uint32_t>(args.epoch), rate_, scale()};
    Dropout(this->target(), draw, args.sample_ids, static_cast<uint8_t*>(args.state),
            this->Out(args.output), this->In(args.input), this->options_.batch, elements_);
  }
  // The output may have overwritten the input. The output is above zero exactly where the input was
  // above zero and was not dropped.
  void Backward(const BackwardArgs& args) override {
    DropoutGradient(this->target(), scale(), static_cast<const uint8_t*>(args.state),
                    this->Out(args.input_gradient), this->In(args.output_gradient),
                    this->options_.input_is_relu ? this->In(args.output) : nullptr, count_);
  }

 private:
  float scale() const { return 1.0f / (1.0f - rate_); }

  const float rate_;
  const int elements_, count_;
};

}  // namespace

std::unique_ptr<Op> Make(const DropoutSpec&, const OpRequest& request) {
  return MakeFor<Op, DropoutOp>(request.card.activation_type(), request);
}

}  // namespace muster::cuda
