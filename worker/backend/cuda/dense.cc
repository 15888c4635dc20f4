// y = W x + b.
#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/ops.h"
#include "worker/backend/cuda/products.h"
#include "worker/backend/cuda/weight_copies.h"

namespace muster::cuda {
namespace {

template <typename T>
class DenseOp : public TypedOp<T> {
 public:
  explicit DenseOp(const OpRequest& request)
      : TypedOp<T>(request),
        type_(CudaTypeOf(request.card.activation_type())),
        use_bias_(std::get<DenseSpec>(request.layer.spec).use_bias),
        batch_(static_cast<int>(request.options.batch)),
        inputs_(InputCount(request) / batch_),
        units_(OutputCount(request) / batch_),
        weights_(request.card, request.options, int64_t{units_} * inputs_, use_bias_ ? units_ : 0),
        forward_(request.card, {batch_, units_, inputs_}, use_bias_,
                 request.options.activation == Activation::kRelu),
        parts_(batch_, units_) {}

  size_t scratch_bytes() const override {
    return this->trains() && use_bias_ ? parts_.scratch_bytes(1) : 0;
  }

  void Forward(const ForwardArgs& args) override {
    weights_.Convert(args.weights, args.bias);
    forward_.Run(args.input, weights_.Weights(args.weights),
                 use_bias_ ? weights_.Bias(args.bias) : nullptr, use_bias_ ? args.bias : nullptr,
                 args.output);
  }

  void Backward(const BackwardArgs& args) override {
    const Matrix dy{.data = args.output_gradient, .type = type_, .row_stride = units_};
    Matrix dy_transposed = dy;
    dy_transposed.transposed = true;
    Multiply(this->card_, {units_, inputs_, batch_}, dy_transposed,
             {.data = args.input, .type = type_, .row_stride = inputs_},
             {.data = args.weights_gradient, .row_stride = inputs_});
    if (use_bias_) {
      ColumnSums(this->target(), parts_, this->In(args.output_gradient),
                 static_cast<double*>(args.scratch), args.bias_gradient);
    }
    if (!this->options_.input_gradient) return;
    Multiply(this->card_, {batch_, inputs_, units_}, dy,
             {.data = weights_.Weights(args.weights), .type = type_, .row_stride = inputs_},
             {.data = args.input_gradient, .type = type_, .row_stride = inputs_});
    if (const T* const relu = this->ReluBefore(args)) {
      MaskByRelu(this->target(), this->Out(args.input_gradient), relu, int64_t{batch_} * inputs_);
    }
  }

 private:
  const cudaDataType_t type_;
  const bool use_bias_;
  const int batch_, inputs_, units_;
  const TypedWeights<T> weights_;
  const FusedProduct forward_;
  const ColumnParts parts_;
};

}  // namespace

std::unique_ptr<Op> Make(const DenseSpec&, const OpRequest& request) {
  return MakeFor<Op, DenseOp>(request.card.activation_type(), request);
}

}  // namespace muster::cuda
