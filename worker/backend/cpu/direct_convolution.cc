// Convolution passes by oneDNN, on channels-last activations.
//
// oneDNN's fast kernels need blocked weights, possibly in different layouts for forward and
// backward-data. These copies are made once for each version of the weights. Gradients are
// reordered from the kernel's layout straight into the caller's. Two kinds of convolution run in
// oneDNN's preferred layout, through copies in scratch: those with channel counts for which oneDNN
// has no channels-last kernel (mostly counts that are not multiples of 8 or 16), and large 3x3
// convolutions, whose blocked versions save more than the copies cost.
#include <algorithm>

#include "worker/backend/cpu/convolution_passes.h"
#include "worker/backend/cpu/descriptors.h"
#include "worker/backend/cpu/kernels.h"
#include "worker/backend/cpu/onednn.h"
#include "worker/backend/cpu/ops.h"
#include "worker/backend/cpu/weight_layouts.h"

namespace muster::cpu {
namespace {

using dnnl::memory;
using Tag = memory::format_tag;

constexpr auto kF32 = memory::data_type::f32;

// The shapes of one convolution. The layout of the activations is chosen later.
struct Geometry {
  explicit Geometry(const OpRequest& request)
      : spec(std::get<Conv2dSpec>(request.layer.spec)),
        type(request.bf16 ? memory::data_type::bf16 : kF32) {
    const Layer& layer = request.layer;
    const int64_t batch = request.options.batch;
    const Shape &in = layer.input_shape, &out = layer.output_shape;
    source = {batch, in.channels, in.height, in.width};
    const int64_t g = spec.groups, h = spec.kernel_height, w = spec.kernel_width;
    const int64_t group_in = in.channels / g, group_out = spec.filters / g;
    weights = {group_out, group_in, h, w};
    // [out, height, width, in], as strides in oneDNN's order of dimensions.
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
  memory::desc PlainWeights() const { return memory::desc(weights, kF32, weights_strides); }
  memory::desc Bias() const {
    return spec.use_bias ? memory::desc(bias, kF32, Tag::x) : memory::desc();
  }
  memory::desc Source(Tag tag) const { return {source, type, tag}; }
  memory::desc Destination(Tag tag) const { return {destination, type, tag}; }
  // As the kernels multiply by them. Their gradients are always floats.
  memory::desc AnyWeights() const { return {weights, type, Tag::any}; }
  memory::desc AnyWeightsGradient() const { return {weights, kF32, Tag::any}; }

  Conv2dSpec spec;
  memory::data_type type;  // of the activations
  memory::dims source, weights, weights_strides, bias, destination;
  memory::dims strides, pads_before, pads_after;
};

constexpr auto kAlgorithm = dnnl::algorithm::convolution_direct;

// oneDNN 2.6's strided 1x1 kernels write beyond their scratchpad when they read channels-last
// activations whose channels do not fill their vectors.
bool OverrunsScratchpad(const Geometry& g) {
  return g.spec.kernel_height == 1 && g.spec.kernel_width == 1 &&
         g.spec.stride_height * g.spec.stride_width > 1 && g.source[1] / g.spec.groups % 16 != 0;
}

// Whether blocked activations are faster even though they must be copied. With channels-last
// activations, the rows of a 3x3 window over many channels map to the same few sets of the L1
// cache: oneDNN 2.6's AVX2 kernels reach 62–95 of 103 GFLOP/s, and 73–101 with blocked activations.
// In bfloat16, blocked ones gain 6 to 20 % from 256 channels on, and nothing with 64 (Zen 5).
// Copying a value costs as much as about a hundred multiply-adds. 5x5 kernels gain nothing.
bool PrefersBlocked(const Geometry& g) {
  const int64_t window = g.spec.kernel_height * g.spec.kernel_width;
  const int64_t least = g.type == kF32 ? 64 : 128;
  return g.spec.groups == 1 && g.source[1] >= least && g.destination[1] >= least && window >= 9 &&
         window < 25;
}

// Calls make(tag) for channels-last activations. Also calls it for the layout that oneDNN prefers
// if oneDNN has no good kernel for channels-last, or a better one for another layout.
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
                                                            const OpOptions& options) {
  const auto kind = options.mode == Mode::kTraining ? dnnl::prop_kind::forward_training
                                                    : dnnl::prop_kind::forward_inference;
  return ChooseLayout(g, [&](Tag tag) {
    return ForwardDescriptorOf<dnnl::convolution_forward>(
        dnn.engine, IfNone::kEmpty, UserScratchpad(options.activation == Activation::kRelu), kind,
        kAlgorithm, g.Source(tag), g.AnyWeights(), g.Bias(), g.Destination(tag), g.strides,
        g.pads_before, g.pads_after);
  });
}

dnnl::convolution_backward_data::primitive_desc BackwardDataDescriptor(const OneDnn& dnn,
                                                                       const Geometry& g,
                                                                       const OpOptions& options) {
  const auto forward = ForwardDescriptor(dnn, g, options);
  return ChooseLayout(g, [&](Tag tag) {
    return BackwardDescriptorOf<dnnl::convolution_backward_data>(
        dnn.engine, IfNone::kEmpty, UserScratchpad(), forward, kAlgorithm, g.Source(tag),
        g.AnyWeights(), g.Destination(tag), g.strides, g.pads_before, g.pads_after);
  });
}

dnnl::convolution_backward_weights::primitive_desc BackwardWeightsDescriptor(
    const OneDnn& dnn, const Geometry& g, const OpOptions& options) {
  const auto forward = ForwardDescriptor(dnn, g, options);
  return ChooseLayout(g, [&](Tag tag) {
    return BackwardDescriptorOf<dnnl::convolution_backward_weights>(
        dnn.engine, IfNone::kEmpty, UserScratchpad(), forward, kAlgorithm, g.Source(tag),
        g.AnyWeightsGradient(), g.Bias(), g.Destination(tag), g.strides, g.pads_before,
        g.pads_after);
  });
}

// The common part of the passes; `source` and `destination` are values or gradients.
struct Direct {
  explicit Direct(const OpRequest& request) : dnn(request.dnn), geometry(request) {}

  memory::desc PlainSource() const { return geometry.Source(Tag::nhwc); }
  memory::desc PlainDestination() const { return geometry.Destination(Tag::nhwc); }

  OneDnn& dnn;
  const Geometry geometry;
  ScratchLayout scratch;
  StagedTensor source, destination;
  Primitive primitive;
};

class DirectForward : public ForwardPass {
 public:
  DirectForward(const OpRequest& request, CpuWeightLayouts& layouts) : pass_(request) {
    OneDnn& dnn = request.dnn;
    const auto d = ForwardDescriptor(dnn, pass_.geometry, request.options);
    pass_.source = StagedTensor(dnn, pass_.PlainSource(), d.src_desc(), pass_.scratch);
    pass_.destination = StagedTensor(dnn, pass_.PlainDestination(), d.dst_desc(), pass_.scratch);
    weights_ = &layouts.Reordered(dnn, request.options.layer, pass_.geometry.PlainWeights(),
                                  d.weights_desc());
    std::unordered_map<int, memory> arguments = {{DNNL_ARG_SRC, pass_.source.inside()},
                                                 {DNNL_ARG_WEIGHTS, weights_->inside()},
                                                 {DNNL_ARG_DST, pass_.destination.inside()}};
    if (pass_.geometry.spec.use_bias) {
      arguments[DNNL_ARG_BIAS] = bias_ = Unbound(dnn, d.bias_desc());
    }
    pass_.primitive =
        Primitive(dnn, dnnl::convolution_forward(d), d.scratchpad_desc(), arguments, pass_.scratch);
  }

  size_t scratch_floats() const override { return pass_.scratch.floats(); }

  void Run(const ForwardArgs& args) override {
    pass_.source.Bind(args.input, args.scratch);
    pass_.destination.Bind(args.output, args.scratch);
    weights_->Update(pass_.dnn, args.weights, args.weights_version);
    if (pass_.geometry.spec.use_bias) SetAddress(bias_, args.bias);
    pass_.source.CopyIn(pass_.dnn);
    pass_.primitive.Execute(pass_.dnn, args.scratch);
    pass_.destination.CopyOut(pass_.dnn);
  }

 private:
  Direct pass_;
  ReorderedWeights* weights_ = nullptr;
  memory bias_;
};

class DirectBackwardData : public BackwardPass {
 public:
  DirectBackwardData(const OpRequest& request, CpuWeightLayouts& layouts)
      : pass_(request),
        input_is_relu_(request.options.input_is_relu),
        elements_(request.options.batch * request.layer.input_shape.elements()) {
    OneDnn& dnn = request.dnn;
    const auto d = BackwardDataDescriptor(dnn, pass_.geometry, request.options);
    pass_.source = StagedTensor(dnn, pass_.PlainSource(), d.diff_src_desc(), pass_.scratch);
    pass_.destination =
        StagedTensor(dnn, pass_.PlainDestination(), d.diff_dst_desc(), pass_.scratch);
    weights_ = &layouts.Reordered(dnn, request.options.layer, pass_.geometry.PlainWeights(),
                                  d.weights_desc());
    pass_.primitive = Primitive(dnn, dnnl::convolution_backward_data(d), d.scratchpad_desc(),
                                {{DNNL_ARG_DIFF_SRC, pass_.source.inside()},
                                 {DNNL_ARG_WEIGHTS, weights_->inside()},
                                 {DNNL_ARG_DIFF_DST, pass_.destination.inside()}},
                                pass_.scratch);
  }

  size_t scratch_floats() const override { return pass_.scratch.floats(); }

  void Run(const BackwardArgs& args) override {
    pass_.source.Bind(args.input_gradient, args.scratch);
    pass_.destination.Bind(args.output_gradient, args.scratch);
    weights_->Update(pass_.dnn, args.weights, args.weights_version);
    pass_.destination.CopyIn(pass_.dnn);
    pass_.primitive.Execute(pass_.dnn, args.scratch);
    pass_.source.CopyOut(pass_.dnn);
    if (input_is_relu_) Mask(args);
  }

 private:
  void Mask(const BackwardArgs& args) const {
    if (pass_.geometry.type == kF32) {
      MaskByRelu(Floats(args.input_gradient), Floats(args.input), elements_);
    } else {
      MaskByRelu(static_cast<Bf16*>(args.input_gradient), static_cast<const Bf16*>(args.input),
                 elements_);
    }
  }

  Direct pass_;
  const bool input_is_relu_;
  const int64_t elements_;  // of the input
  ReorderedWeights* weights_ = nullptr;
};

class DirectBackwardWeights : public BackwardPass {
 public:
  explicit DirectBackwardWeights(const OpRequest& request) : pass_(request) {
    OneDnn& dnn = request.dnn;
    const auto d = BackwardWeightsDescriptor(dnn, pass_.geometry, request.options);
    pass_.source = StagedTensor(dnn, pass_.PlainSource(), d.src_desc(), pass_.scratch);
    pass_.destination =
        StagedTensor(dnn, pass_.PlainDestination(), d.diff_dst_desc(), pass_.scratch);
    gradient_ =
        StagedTensor(dnn, pass_.geometry.PlainWeights(), d.diff_weights_desc(), pass_.scratch);
    std::unordered_map<int, memory> arguments = {{DNNL_ARG_SRC, pass_.source.inside()},
                                                 {DNNL_ARG_DIFF_DST, pass_.destination.inside()},
                                                 {DNNL_ARG_DIFF_WEIGHTS, gradient_.inside()}};
    if (pass_.geometry.spec.use_bias) {
      arguments[DNNL_ARG_DIFF_BIAS] = bias_gradient_ = Unbound(dnn, d.diff_bias_desc());
    }
    pass_.primitive = Primitive(dnn, dnnl::convolution_backward_weights(d), d.scratchpad_desc(),
                                arguments, pass_.scratch);
  }

  size_t scratch_floats() const override { return pass_.scratch.floats(); }

  void Run(const BackwardArgs& args) override {
    pass_.source.Bind(args.input, args.scratch);
    pass_.destination.Bind(args.output_gradient, args.scratch);
    gradient_.Bind(args.weights_gradient, args.scratch);
    if (pass_.geometry.spec.use_bias) SetAddress(bias_gradient_, args.bias_gradient);
    pass_.source.CopyIn(pass_.dnn);
    pass_.destination.CopyIn(pass_.dnn);
    pass_.primitive.Execute(pass_.dnn, args.scratch);
    gradient_.CopyOut(pass_.dnn);
  }

 private:
  Direct pass_;
  StagedTensor gradient_;
  memory bias_gradient_;
};

}  // namespace

std::unique_ptr<ForwardPass> MakeDirectForward(const OpRequest& request,
                                               CpuWeightLayouts& layouts) {
  return std::make_unique<DirectForward>(request, layouts);
}

std::unique_ptr<BackwardPass> MakeDirectBackwardData(const OpRequest& request,
                                                     CpuWeightLayouts& layouts) {
  return std::make_unique<DirectBackwardData>(request, layouts);
}

std::unique_ptr<BackwardPass> MakeDirectBackwardWeights(const OpRequest& request) {
  return std::make_unique<DirectBackwardWeights>(request);
}

}  // namespace muster::cpu
