// Convolution by oneDNN, on channels-last activations.
//
// The fast kernels of oneDNN want blocked weights, and possibly others in forward and in
// backward-data: those copies are made once per version of the weights. Gradients are reordered
// from the kernel's layout straight into the caller's. Channel counts that have no channels-last
// kernel (not multiples of 8 or 16, mostly), and large 3x3 kernels, whose blocked versions are
// faster by more than the copies cost, run in whatever layout oneDNN likes best, through copies in
// scratch.
#include <algorithm>
#include <optional>

#include "worker/backend/cpu/few_channels_gradient.h"
#include "worker/backend/cpu/kernels.h"
#include "worker/backend/cpu/onednn.h"
#include "worker/backend/cpu/ops.h"

namespace muster::cpu {
namespace {

using dnnl::memory;
using Tag = memory::format_tag;

memory::desc Describe(const memory::dims& dims, Tag tag) {
  return memory::desc(dims, memory::data_type::f32, tag);
}

// The shapes of one convolution, with activations in a layout still to be chosen.
struct Geometry {
  Geometry(const Layer& layer, int64_t batch) : spec(std::get<Conv2dSpec>(layer.spec)) {
    const Shape &in = layer.input_shape, &out = layer.output_shape;
    source = {batch, in.channels, in.height, in.width};
    const int64_t g = spec.groups, h = spec.kernel_height, w = spec.kernel_width;
    const int64_t group_in = in.channels / g, group_out = spec.filters / g;
    weights = {group_out, group_in, h, w};
    // [out, height, width, in]: where oneDNN's order of dimensions has its strides.
    weights_strides = {h * w * group_in, 1, w * group_in, group_in};
    if (g > 1) {
      weights.insert(weights.begin(), g);
      weights_strides.insert(weights_strides.begin(), group_out * weights_strides[0]);
    }
    bias = {spec.filters};
    destination = {batch, out.channels, out.height, out.width};
    strides = {spec.stride_height, spec.stride_width};
    pads_before = {spec.pads.top, spec.pads.left};
    pads_after = {spec.pads.bottom, spec.pads.right};
  }
  memory::desc PlainWeights() const {
    return memory::desc(weights, memory::data_type::f32, weights_strides);
  }
  memory::desc Bias() const { return spec.use_bias ? Describe(bias, Tag::x) : memory::desc(); }

  Conv2dSpec spec;
  memory::dims source, weights, weights_strides, bias, destination;
  memory::dims strides, pads_before, pads_after;
};

constexpr auto kAlgorithm = dnnl::algorithm::convolution_direct;

// The strided 1x1 kernels of oneDNN 2.6 write beyond their scratchpad when they read channels-last
// activations whose channels do not fill their vectors.
bool OverrunsScratchpad(const Geometry& g) {
  return g.spec.kernel_height == 1 && g.spec.kernel_width == 1 &&
         g.spec.stride_height * g.spec.stride_width > 1 && g.source[1] / g.spec.groups % 16 != 0;
}

// Where blocked activations win although they have to be copied. With channels-last ones, the
// rows of a 3x3 window over many channels fall into the same few sets of the L1 cache: oneDNN
// 2.6's AVX2 kernels run at 62–95 GFLOP/s of 103, and at 73–101 with blocked ones. A copy costs as
// much as some hundred multiply-adds per value. 5x5 kernels gain nothing.
bool PrefersBlocked(const Geometry& g) {
  const int64_t window = g.spec.kernel_height * g.spec.kernel_width;
  return g.spec.groups == 1 && g.source[1] >= 64 && g.destination[1] >= 64 && window >= 9 &&
         window < 25;
}

// Calls make(tag) for channels-last activations and, where oneDNN has no (good) kernels for those
// or better ones for others, for a layout of its own choice.
template <typename Make>
auto ChooseLayout(const Geometry& geometry, const Make& make) {
  if (PrefersBlocked(geometry)) {
    auto blocked = make(Tag::any);
    if (blocked && !IsReference(blocked.impl_info_str())) return blocked;
  }
  auto descriptor = make(OverrunsScratchpad(geometry) ? Tag::nchw : Tag::nhwc);
  if (!descriptor || IsReference(descriptor.impl_info_str())) {
    auto other = make(Tag::any);
    if (other && (!descriptor || !IsReference(other.impl_info_str()))) return other;
  }
  if (!descriptor) throw dnnl::error(dnnl_unimplemented, "no implementation for this convolution");
  return descriptor;
}

dnnl::convolution_forward::primitive_desc ForwardDescriptor(const OneDnn& dnn, const Geometry& g,
                                                            dnnl::prop_kind kind, bool relu) {
  return ChooseLayout(g, [&](Tag tag) {
    return dnnl::convolution_forward::primitive_desc(
        {kind, kAlgorithm, Describe(g.source, tag), Describe(g.weights, Tag::any), g.Bias(),
         Describe(g.destination, tag), g.strides, g.pads_before, g.pads_after},
        UserScratchpad(relu), dnn.engine, true);
  });
}

dnnl::convolution_backward_data::primitive_desc BackwardDataDescriptor(
    const OneDnn& dnn, const Geometry& g,
    const dnnl::convolution_forward::primitive_desc& forward) {
  return ChooseLayout(g, [&](Tag tag) {
    return dnnl::convolution_backward_data::primitive_desc(
        {kAlgorithm, Describe(g.source, tag), Describe(g.weights, Tag::any),
         Describe(g.destination, tag), g.strides, g.pads_before, g.pads_after},
        UserScratchpad(), dnn.engine, forward, true);
  });
}

dnnl::convolution_backward_weights::primitive_desc BackwardWeightsDescriptor(
    const OneDnn& dnn, const Geometry& g,
    const dnnl::convolution_forward::primitive_desc& forward) {
  return ChooseLayout(g, [&](Tag tag) {
    return dnnl::convolution_backward_weights::primitive_desc(
        {kAlgorithm, Describe(g.source, tag), Describe(g.weights, Tag::any), g.Bias(),
         Describe(g.destination, tag), g.strides, g.pads_before, g.pads_after},
        UserScratchpad(), dnn.engine, forward, true);
  });
}

// Weights in a primitive's layout, made anew when their version changes.
class WeightsCopy {
 public:
  WeightsCopy() = default;
  WeightsCopy(const OneDnn& dnn, const memory::desc& outside, const memory::desc& inside)
      : same_(outside == inside), outside_(Unbound(dnn, outside)) {
    inside_ = same_ ? outside_ : memory(inside, dnn.engine);
    if (!same_) reorder_ = dnnl::reorder(outside_, inside_);
  }

  const memory& inside() const { return inside_; }

  void Update(OneDnn& dnn, const float* weights, int64_t version) {
    if (!same_ && version_ == version) return;
    SetAddress(outside_, weights);
    if (!same_) reorder_.execute(dnn.stream, outside_, inside_);
    version_ = version;
  }

 private:
  bool same_ = true;
  memory outside_, inside_;
  dnnl::reorder reorder_;
  std::optional<int64_t> version_;
};

class Conv2d : public Op {
 public:
  Conv2d(OneDnn& dnn, const Layer& layer, const OpOptions& options)
      : dnn_(dnn), options_(options), geometry_(layer, options.batch) {
    const bool training = options.mode == Mode::kTraining;
    const auto descriptor = ForwardDescriptor(
        dnn, geometry_,
        training ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference,
        options.activation == Activation::kRelu);
    MakeForward(descriptor);
    if (!training) return;
    if (options.input_gradient) MakeBackwardData(descriptor);
    if (FewChannelsGradient::Fits(layer)) {
      few_channels_.emplace(layer, options.batch);
    } else {
      MakeBackwardWeights(descriptor);
    }
  }

  // Forward, backward-data and backward-weights run one after the other in the same scratch.
  size_t scratch_floats() const override {
    return std::max({forward_.scratch.floats(), data_.scratch.floats(), weights_.scratch.floats(),
                     few_channels_ ? few_channels_->scratch_floats() : 0});
  }

  void Forward(const ForwardArgs& args) override {
    forward_.source.Bind(args.input, args.scratch);
    forward_.destination.Bind(args.output, args.scratch);
    forward_weights_.Update(dnn_, args.weights, args.weights_version);
    if (geometry_.spec.use_bias) SetAddress(forward_bias_, args.bias);
    forward_.source.CopyIn(dnn_);
    forward_.primitive.Execute(dnn_, args.scratch);
    forward_.destination.CopyOut(dnn_);
  }

  void Backward(const BackwardArgs& args) override {
    BackwardWeights(args);
    if (options_.input_gradient) BackwardData(args);
  }

 private:
  // One of the three primitives; `source` and `destination` are values or gradients.
  struct Pass {
    ScratchLayout scratch;
    StagedTensor source, destination;
    Primitive primitive;
  };

  memory::desc PlainSource() const { return Describe(geometry_.source, Tag::nhwc); }
  memory::desc PlainDestination() const { return Describe(geometry_.destination, Tag::nhwc); }

  void MakeForward(const dnnl::convolution_forward::primitive_desc& d) {
    Pass& pass = forward_;
    pass.source = StagedTensor(dnn_, PlainSource(), d.src_desc(), pass.scratch);
    pass.destination = StagedTensor(dnn_, PlainDestination(), d.dst_desc(), pass.scratch);
    forward_weights_ = WeightsCopy(dnn_, geometry_.PlainWeights(), d.weights_desc());
    std::unordered_map<int, memory> arguments = {{DNNL_ARG_SRC, pass.source.inside()},
                                                 {DNNL_ARG_WEIGHTS, forward_weights_.inside()},
                                                 {DNNL_ARG_DST, pass.destination.inside()}};
    if (geometry_.spec.use_bias) {
      arguments[DNNL_ARG_BIAS] = forward_bias_ = Unbound(dnn_, d.bias_desc());
    }
    pass.primitive =
        Primitive(dnn_, dnnl::convolution_forward(d), d.scratchpad_desc(), arguments, pass.scratch);
  }

  void MakeBackwardData(const dnnl::convolution_forward::primitive_desc& forward) {
    const auto d = BackwardDataDescriptor(dnn_, geometry_, forward);
    Pass& pass = data_;
    pass.source = StagedTensor(dnn_, PlainSource(), d.diff_src_desc(), pass.scratch);
    pass.destination = StagedTensor(dnn_, PlainDestination(), d.diff_dst_desc(), pass.scratch);
    data_weights_ = WeightsCopy(dnn_, geometry_.PlainWeights(), d.weights_desc());
    pass.primitive = Primitive(dnn_, dnnl::convolution_backward_data(d), d.scratchpad_desc(),
                               {{DNNL_ARG_DIFF_SRC, pass.source.inside()},
                                {DNNL_ARG_WEIGHTS, data_weights_.inside()},
                                {DNNL_ARG_DIFF_DST, pass.destination.inside()}},
                               pass.scratch);
  }

  void MakeBackwardWeights(const dnnl::convolution_forward::primitive_desc& forward) {
    const auto d = BackwardWeightsDescriptor(dnn_, geometry_, forward);
    Pass& pass = weights_;
    pass.source = StagedTensor(dnn_, PlainSource(), d.src_desc(), pass.scratch);
    pass.destination = StagedTensor(dnn_, PlainDestination(), d.diff_dst_desc(), pass.scratch);
    weights_gradient_ =
        StagedTensor(dnn_, geometry_.PlainWeights(), d.diff_weights_desc(), pass.scratch);
    std::unordered_map<int, memory> arguments = {
        {DNNL_ARG_SRC, pass.source.inside()},
        {DNNL_ARG_DIFF_DST, pass.destination.inside()},
        {DNNL_ARG_DIFF_WEIGHTS, weights_gradient_.inside()}};
    if (geometry_.spec.use_bias) {
      arguments[DNNL_ARG_DIFF_BIAS] = bias_gradient_ = Unbound(dnn_, d.diff_bias_desc());
    }
    pass.primitive = Primitive(dnn_, dnnl::convolution_backward_weights(d), d.scratchpad_desc(),
                               arguments, pass.scratch);
  }

  void BackwardWeights(const BackwardArgs& args) {
    if (few_channels_) {
      return few_channels_->Run(args.input, args.output_gradient, args.weights_gradient,
                                geometry_.spec.use_bias ? args.bias_gradient : nullptr,
                                args.scratch);
    }
    Pass& pass = weights_;
    pass.source.Bind(args.input, args.scratch);
    pass.destination.Bind(args.output_gradient, args.scratch);
    weights_gradient_.Bind(args.weights_gradient, args.scratch);
    if (geometry_.spec.use_bias) SetAddress(bias_gradient_, args.bias_gradient);
    pass.source.CopyIn(dnn_);
    pass.destination.CopyIn(dnn_);
    pass.primitive.Execute(dnn_, args.scratch);
    weights_gradient_.CopyOut(dnn_);
  }

  void BackwardData(const BackwardArgs& args) {
    Pass& pass = data_;
    pass.source.Bind(args.input_gradient, args.scratch);
    pass.destination.Bind(args.output_gradient, args.scratch);
    data_weights_.Update(dnn_, args.weights, args.weights_version);
    pass.destination.CopyIn(dnn_);
    pass.primitive.Execute(dnn_, args.scratch);
    pass.source.CopyOut(dnn_);
    if (options_.input_is_relu) {
      const auto& dims = geometry_.source;
      MaskByRelu(args.input_gradient, args.input, dims[0] * dims[1] * dims[2] * dims[3]);
    }
  }

  OneDnn& dnn_;
  const OpOptions options_;
  const Geometry geometry_;
  Pass forward_, data_, weights_;
  std::optional<FewChannelsGradient> few_channels_;  // instead of weights_
  WeightsCopy forward_weights_, data_weights_;
  StagedTensor weights_gradient_;
  memory forward_bias_, bias_gradient_;
};

}  // namespace

std::unique_ptr<Op> MakeConv2d(OneDnn& dnn, const Layer& layer, const OpOptions& options) {
  return std::make_unique<Conv2d>(dnn, layer, options);
}

}  // namespace muster::cpu
