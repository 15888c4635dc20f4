// Computes y = W x + b with oneDNN's inner product. Weights and gradients stay in the caller's
// layout: oneDNN's matrix product packs its operands itself, so blocked copies would gain nothing.
// The input gradient of large layers uses DenseInputGradient.
#include <algorithm>
#include <optional>

#include "worker/backend/cpu/dense_input_gradient.h"
#include "worker/backend/cpu/descriptors.h"
#include "worker/backend/cpu/kernels.h"
#include "worker/backend/cpu/onednn.h"
#include "worker/backend/cpu/ops.h"

namespace muster::cpu {
namespace {

using dnnl::memory;
using Tag = memory::format_tag;

class Dense : public FloatOp {
 public:
  Dense(OneDnn& dnn, const Layer& layer, const OpOptions& options)
      : dnn_(dnn),
        options_(options),
        use_bias_(std::get<DenseSpec>(layer.spec).use_bias),
        inputs_(layer.input_shape.elements()),
        units_(layer.output_shape.elements()) {
    const auto describe = [](const memory::dims& dims, Tag tag) {
      return memory::desc(dims, memory::data_type::f32, tag);
    };
    const auto x = describe({options.batch, inputs_}, Tag::ab);
    const auto y = describe({options.batch, units_}, Tag::ab);
    const auto w = describe({units_, inputs_}, Tag::ab);
    const auto b = use_bias_ ? describe({units_}, Tag::a) : memory::desc();
    x_ = Unbound(dnn, x);
    y_ = Unbound(dnn, y);
    w_ = Unbound(dnn, w);
    if (use_bias_) b_ = Unbound(dnn, b);
    dx_ = Unbound(dnn, x);
    dy_ = Unbound(dnn, y);
    dw_ = Unbound(dnn, w);
    if (use_bias_) db_ = Unbound(dnn, b);
    MakePrimitives(x, w, b, y);
  }

  size_t scratch_floats() const override {
    return std::max(scratch_.floats(), own_data_ ? own_data_->scratch_floats() : 0);
  }

  void ForwardFloats(const FloatForwardArgs& args) override {
    SetAddress(x_, args.input);
    SetAddress(y_, args.output);
    SetAddress(w_, args.weights);
    if (use_bias_) SetAddress(b_, args.bias);
    forward_.Execute(dnn_, args.scratch);
  }

  void BackwardFloats(const FloatBackwardArgs& args) override {
    SetAddress(x_, args.input);
    SetAddress(w_, args.weights);
    SetAddress(dy_, args.output_gradient);
    SetAddress(dw_, args.weights_gradient);
    if (use_bias_) SetAddress(db_, args.bias_gradient);
    weights_.Execute(dnn_, args.scratch);
    if (!options_.input_gradient) return;
    if (own_data_) {
      return own_data_->Run(args.output_gradient, args.weights,
                            options_.input_is_relu ? args.input : nullptr, args.input_gradient,
                            args.scratch);
    }
    SetAddress(dx_, args.input_gradient);
    data_.Execute(dnn_, args.scratch);
    if (options_.input_is_relu) {
      MaskByRelu(args.input_gradient, args.input, options_.batch * inputs_);
    }
  }

 private:
  void MakePrimitives(const memory::desc& x, const memory::desc& w, const memory::desc& b,
                      const memory::desc& y) {
    const bool training = options_.mode == Mode::kTraining;
    const auto kind =
        training ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference;
    const auto forward = ForwardDescriptorOf<dnnl::inner_product_forward>(
        dnn_.engine, IfNone::kThrow, UserScratchpad(options_.activation == Activation::kRelu), kind,
        x, w, b, y);
    forward_ = Make(forward, {{DNNL_ARG_SRC, x_}, {DNNL_ARG_WEIGHTS, w_}, {DNNL_ARG_DST, y_}},
                    DNNL_ARG_BIAS, b_);
    if (!training) return;

    const auto weights = BackwardDescriptorOf<dnnl::inner_product_backward_weights>(
        dnn_.engine, IfNone::kThrow, UserScratchpad(), forward, x, w, b, y);
    weights_ =
        Make(weights, {{DNNL_ARG_SRC, x_}, {DNNL_ARG_DIFF_DST, dy_}, {DNNL_ARG_DIFF_WEIGHTS, dw_}},
             DNNL_ARG_DIFF_BIAS, db_);
    if (!options_.input_gradient) return;

    if (DenseInputGradient::Fits(options_.batch, inputs_, units_)) {
      own_data_.emplace(options_.batch, inputs_, units_);
      return;
    }
    const auto data = BackwardDescriptorOf<dnnl::inner_product_backward_data>(
        dnn_.engine, IfNone::kThrow, UserScratchpad(), forward, x, w, y);
    data_ = Primitive(dnn_, dnnl::inner_product_backward_data(data), data.scratchpad_desc(),
                      {{DNNL_ARG_DIFF_SRC, dx_}, {DNNL_ARG_WEIGHTS, w_}, {DNNL_ARG_DIFF_DST, dy_}},
                      scratch_);
  }

  template <typename Descriptor>
  Primitive Make(const Descriptor& descriptor, std::unordered_map<int, memory> arguments,
                 int bias_argument, const memory& bias) {
    if (use_bias_) arguments[bias_argument] = bias;
    return Primitive(dnn_, dnnl::primitive(descriptor.get()), descriptor.scratchpad_desc(),
                     std::move(arguments), scratch_);
  }

  OneDnn& dnn_;
  const OpOptions options_;
  const bool use_bias_;
  const int64_t inputs_, units_;
  ScratchLayout scratch_;
  memory x_, y_, w_, b_, dx_, dy_, dw_, db_;
  Primitive forward_, data_, weights_;
  std::optional<DenseInputGradient> own_data_;  // instead of data_
};

}  // namespace

std::unique_ptr<Op> Make(const DenseSpec&, const OpRequest& request) {
  return std::make_unique<Dense>(request.dnn, request.layer, request.options);
}

}  // namespace muster::cpu
