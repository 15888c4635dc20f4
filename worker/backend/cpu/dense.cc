// Computes y = W x + b with oneDNN's inner product. Weights and gradients stay in the caller's
// layout: oneDNN's matrix product packs its operands itself, so blocked copies would gain nothing.
// For Bf16 activations the weights are rounded to a copy; a blocked one would be faster to multiply
// by, but takes oneDNN 2.6 seven times longer to make. The input gradient of large layers of floats
// uses DenseInputGradient.
#include <algorithm>
#include <optional>

#include "worker/backend/cpu/dense_input_gradient.h"
#include "worker/backend/cpu/descriptors.h"
#include "worker/backend/cpu/kernels.h"
#include "worker/backend/cpu/onednn.h"
#include "worker/backend/cpu/ops.h"
#include "worker/backend/cpu/weight_layouts.h"

namespace muster::cpu {
namespace {

using dnnl::memory;
using Tag = memory::format_tag;

template <typename T>
class Dense : public TypedOp<T> {
 public:
  explicit Dense(const OpRequest& request)
      : dnn_(request.dnn),
        options_(request.options),
        use_bias_(std::get<DenseSpec>(request.layer.spec).use_bias),
        inputs_(request.layer.input_shape.elements()),
        units_(request.layer.output_shape.elements()) {
    x_ = Unbound(dnn_, {{options_.batch, inputs_}, kType, Tag::ab});
    y_ = Unbound(dnn_, {{options_.batch, units_}, kType, Tag::ab});
    dx_ = Unbound(dnn_, x_.get_desc());
    dy_ = Unbound(dnn_, y_.get_desc());
    dw_ = Unbound(dnn_, {{units_, inputs_}, memory::data_type::f32, Tag::ab});
    if (use_bias_) {
      b_ = Unbound(dnn_, {{units_}, memory::data_type::f32, Tag::a});
      db_ = Unbound(dnn_, b_.get_desc());
    }
    MakePrimitives(LayoutsOf(options_, own_layouts_));
    own_layouts_.Allocate();
  }

  size_t scratch_floats() const override {
    return std::max(scratch_.floats(), own_data_ ? own_data_->scratch_floats() : 0);
  }

  void ForwardTyped(const TypedForwardArgs<T>& args) override {
    SetAddress(x_, args.input);
    SetAddress(y_, args.output);
    forward_weights_->Update(dnn_, args.weights, args.weights_version);
    if (use_bias_) SetAddress(b_, args.bias);
    forward_.Execute(dnn_, args.scratch);
  }

  void BackwardTyped(const TypedBackwardArgs<T>& args) override {
    SetAddress(x_, args.input);
    SetAddress(dy_, args.output_gradient);
    SetAddress(dw_, args.weights_gradient);
    if (use_bias_) SetAddress(db_, args.bias_gradient);
    weights_.Execute(dnn_, args.scratch);
    if (!options_.input_gradient) return;
    if constexpr (std::is_same_v<T, float>) {
      if (own_data_) {
        return own_data_->Run(args.output_gradient, args.weights,
                              options_.input_is_relu ? args.input : nullptr, args.input_gradient,
                              args.scratch);
      }
    }
    data_weights_->Update(dnn_, args.weights, args.weights_version);
    SetAddress(dx_, args.input_gradient);
    data_.Execute(dnn_, args.scratch);
    if (options_.input_is_relu) {
      MaskByRelu(args.input_gradient, args.input, options_.batch * inputs_);
    }
  }

 private:
  static constexpr bool kBf16 = std::is_same_v<T, Bf16>;
  static constexpr auto kType = kBf16 ? memory::data_type::bf16 : memory::data_type::f32;

  void MakePrimitives(CpuWeightLayouts& layouts) {
    const bool training = options_.mode == Mode::kTraining;
    const auto kind =
        training ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference;
    const memory::desc x = x_.get_desc(), y = y_.get_desc(), dw = dw_.get_desc();
    const memory::desc w({units_, inputs_}, kType, Tag::ab);
    const memory::desc b = use_bias_ ? b_.get_desc() : memory::desc();
    const auto forward = ForwardDescriptorOf<dnnl::inner_product_forward>(
        dnn_.engine, IfNone::kThrow, UserScratchpad(options_.activation == Activation::kRelu), kind,
        x, w, b, y);
    forward_weights_ = &layouts.Reordered(dnn_, options_.layer, dw, forward.weights_desc());
    forward_ = Make(
        forward,
        {{DNNL_ARG_SRC, x_}, {DNNL_ARG_WEIGHTS, forward_weights_->inside()}, {DNNL_ARG_DST, y_}},
        DNNL_ARG_BIAS, b_);
    if (!training) return;

    const auto weights = BackwardDescriptorOf<dnnl::inner_product_backward_weights>(
        dnn_.engine, IfNone::kThrow, UserScratchpad(), forward, x, dw, b, y);
    weights_ =
        Make(weights, {{DNNL_ARG_SRC, x_}, {DNNL_ARG_DIFF_DST, dy_}, {DNNL_ARG_DIFF_WEIGHTS, dw_}},
             DNNL_ARG_DIFF_BIAS, db_);
    if (!options_.input_gradient) return;

    if (!kBf16 && DenseInputGradient::Fits(options_.batch, inputs_, units_)) {
      own_data_.emplace(options_.batch, inputs_, units_);
      return;
    }
    const auto data = BackwardDescriptorOf<dnnl::inner_product_backward_data>(
        dnn_.engine, IfNone::kThrow, UserScratchpad(), forward, x, w, y);
    data_weights_ = &layouts.Reordered(dnn_, options_.layer, dw, data.weights_desc());
    data_ = Primitive(dnn_, dnnl::inner_product_backward_data(data), data.scratchpad_desc(),
                      {{DNNL_ARG_DIFF_SRC, dx_},
                       {DNNL_ARG_WEIGHTS, data_weights_->inside()},
                       {DNNL_ARG_DIFF_DST, dy_}},
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
  memory x_, y_, b_, dx_, dy_, dw_, db_;
  CpuWeightLayouts own_layouts_;  // used if the tower has none
  ReorderedWeights *forward_weights_ = nullptr, *data_weights_ = nullptr;
  Primitive forward_, data_, weights_;
  std::optional<DenseInputGradient> own_data_;  // instead of data_
};

}  // namespace

std::unique_ptr<Op> Make(const DenseSpec&, const OpRequest& request) {
  return MakeTyped<Dense>(request, request);
}

}  // namespace muster::cpu
