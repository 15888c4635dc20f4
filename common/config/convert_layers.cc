// Converts each kind of layer: its settings, output shape, variables and FLOPs.
#include <algorithm>
#include <tuple>
#include <variant>
#include <vector>

#include "common/config/graph_builder.h"

namespace muster {
namespace {

constexpr size_t kAlignFloats = 16;  // 64 bytes

constexpr bool AreNumberedAlike(Initializer::Kind kind, config::Initializer::Type type) {
  return static_cast<int>(kind) == static_cast<int>(type);
}
static_assert(AreNumberedAlike(Initializer::Kind::kConstant, config::Initializer::CONSTANT) &&
              AreNumberedAlike(Initializer::Kind::kTruncatedNormal,
                               config::Initializer::TRUNCATED_NORMAL) &&
              AreNumberedAlike(Initializer::Kind::kHe, config::Initializer::HE) &&
              AreNumberedAlike(Initializer::Kind::kXavier, config::Initializer::XAVIER) &&
              AreNumberedAlike(Initializer::Kind::kDirac, config::Initializer::DIRAC) &&
              AreNumberedAlike(Initializer::Kind::kOrthogonal, config::Initializer::ORTHOGONAL));

Initializer Plain(const config::Initializer& settings) {
  return {.kind = static_cast<Initializer::Kind>(settings.type()),
          .value = settings.value(),
          .stddev = settings.stddev(),
          .gain = settings.gain(),
          .draw_others = settings.draw_others()};
}

bool IsOnlyForWeights(config::Initializer::Type type) {
  return type == config::Initializer::DIRAC || type == config::Initializer::ORTHOGONAL;
}

template <typename... Specs>
bool HoldsAny(const LayerSpec& spec) {
  return (std::holds_alternative<Specs>(spec) || ...);
}

Initializer He() { return {.kind = Initializer::Kind::kHe}; }

Initializer Constant(float value) { return {.kind = Initializer::Kind::kConstant, .value = value}; }

}  // namespace

std::pair<int64_t, int64_t> GraphBuilder::Pair(
    const google::protobuf::RepeatedField<uint32_t>& values, const char* key) const {
  if (values.empty() || values.size() > 2) {
    Fail("{}: expected one number, or height and width; got {} numbers", key, values.size());
  }
  return {values[0], values[values.size() - 1]};
}

template <typename M>
GraphBuilder::Window GraphBuilder::PlaceWindow(const M& message, int64_t default_stride_height,
                                               int64_t default_stride_width) const {
  Window window;
  std::tie(window.kernel_height, window.kernel_width) = Pair(message.kernel(), "kernel");
  window.stride_height = default_stride_height;
  window.stride_width = default_stride_width;
  if (message.stride_size() > 0) {
    std::tie(window.stride_height, window.stride_width) = Pair(message.stride(), "stride");
  }
  if (message.has_pad() && message.padding() != config::EXPLICIT) {
    Fail("pad is given, but padding is {}: write padding: EXPLICIT",
         config::Padding_Name(message.padding()));
  }
  const auto place = [&](const char* axis, int64_t in, int64_t kernel, int64_t stride,
                         int64_t& before, int64_t& after) -> int64_t {
    switch (message.padding()) {
      case config::VALID:
        before = after = 0;
        break;
      case config::EXPLICIT:
        before = after = message.pad();
        break;
      case config::SAME: {
        const int64_t out = (in + stride - 1) / stride;
        const int64_t total = std::max<int64_t>(0, (out - 1) * stride + kernel - in);
        before = total / 2;
        after = total - before;
        break;
      }
    }
    if (before >= kernel || after >= kernel) {
      Fail(
          "{}: padding of {} must be smaller than the kernel of {}; otherwise some windows would "
          "hold only padding",
          axis, std::max(before, after), kernel);
    }
    if (in + before + after < kernel) {
      Fail("{}: the kernel of {} does not fit into the padded input of {} (input {})", axis, kernel,
           in + before + after, current_->input_shape.ToString());
    }
    return (in + before + after - kernel) / stride + 1;
  };
  const Shape& in = current_->input_shape;
  window.out_height = place("height", in.height, window.kernel_height, window.stride_height,
                            window.pads.top, window.pads.bottom);
  window.out_width = place("width", in.width, window.kernel_width, window.stride_width,
                           window.pads.left, window.pads.right);
  return window;
}

int GraphBuilder::AddVariable(const char* suffix, Variable::Kind kind, std::vector<int64_t> shape,
                              Fans fans, const config::Variable& settings, Initializer fallback) {
  const config::Initializer::Type type = settings.initializer().type();
  if (kind != Variable::Kind::kWeights && IsOnlyForWeights(type)) {
    Fail("{}: the initializer {} is only for weights, expected another one, such as CONSTANT",
         suffix, config::Initializer::Type_Name(type));
  }
  Variable variable;
  variable.name = current_->name + "/" + suffix;
  variable.kind = kind;
  variable.layer = static_cast<int>(layers.size());
  variable.count = 1;
  for (const int64_t n : shape) {
    variable.count *= static_cast<size_t>(n);
    if (variable.count > (size_t{1} << 40)) Fail("{} would hold more than 2^40 numbers", suffix);
  }
  variable.shape = std::move(shape);
  variable.offset = arena_floats;
  variable.fan_in = fans.in;
  variable.fan_out = fans.out;
  variable.initializer = settings.has_initializer() ? Plain(settings.initializer()) : fallback;
  if (settings.has_weight_decay()) variable.weight_decay = settings.weight_decay();
  variable.learning_rate_multiplier = settings.learning_rate_multiplier();
  arena_floats += (variable.count + kAlignFloats - 1) / kAlignFloats * kAlignFloats;
  variables.push_back(std::move(variable));
  return static_cast<int>(variables.size()) - 1;
}

LayerSpec GraphBuilder::Convert(const config::Conv2d& conv) {
  const Window window = PlaceWindow(conv, 1, 1);
  const int64_t in = current_->input_shape.channels, out = conv.filters(), groups = conv.groups();
  if (in % groups != 0) Fail("{} input channels cannot be split into {} equal groups", in, groups);
  if (out % groups != 0) Fail("{} filters cannot be split into {} equal groups", out, groups);
  const int64_t area = window.kernel_height * window.kernel_width;
  const Fans fans{area * in / groups, area * out / groups};
  current_->output_shape = {window.out_height, window.out_width, out};
  current_->weights = AddVariable("weights", Variable::Kind::kWeights,
                                  {out, window.kernel_height, window.kernel_width, in / groups},
                                  fans, conv.weights(), He());
  if (conv.use_bias()) {
    current_->bias =
        AddVariable("bias", Variable::Kind::kBias, {out}, fans, conv.bias(), Constant(0));
  }
  current_->forward_flops =
      2.0 * static_cast<double>(current_->output_shape.elements()) * static_cast<double>(fans.in);
  return Conv2dSpec{out,
                    window.kernel_height,
                    window.kernel_width,
                    window.stride_height,
                    window.stride_width,
                    window.pads,
                    conv.use_bias(),
                    groups};
}

LayerSpec GraphBuilder::Convert(const config::Dense& dense) {
  const int64_t in = current_->input_shape.elements(), out = dense.units();
  current_->output_shape = {1, 1, out};
  current_->weights =
      AddVariable("weights", Variable::Kind::kWeights, {out, in}, {in, out}, dense.weights(), He());
  if (dense.use_bias()) {
    current_->bias =
        AddVariable("bias", Variable::Kind::kBias, {out}, {in, out}, dense.bias(), Constant(0));
  }
  current_->forward_flops = 2.0 * static_cast<double>(in) * static_cast<double>(out);
  return DenseSpec{out, dense.use_bias()};
}

LayerSpec GraphBuilder::Convert(const config::Pool& pool, PoolSpec::Kind kind) {
  const auto [kernel_height, kernel_width] = Pair(pool.kernel(), "kernel");
  const Window window = PlaceWindow(pool, kernel_height, kernel_width);
  current_->output_shape = {window.out_height, window.out_width, current_->input_shape.channels};
  current_->forward_flops = static_cast<double>(current_->output_shape.elements()) *
                            static_cast<double>(kernel_height * kernel_width);
  return PoolSpec{kind,
                  window.kernel_height,
                  window.kernel_width,
                  window.stride_height,
                  window.stride_width,
                  window.pads};
}

LayerSpec GraphBuilder::Convert(const config::ReflectPad& pad) {
  const auto [rows, columns] = Pair(pad.pad(), "pad");
  const Shape& in = current_->input_shape;
  if (rows >= in.height || columns >= in.width) {
    Fail("expected fewer rows and columns than the input, {}, has, got pad: [{}, {}]",
         in.ToString(), rows, columns);
  }
  current_->output_shape = {in.height + 2 * rows, in.width + 2 * columns, in.channels};
  return ReflectPadSpec{rows, columns};
}

LayerSpec GraphBuilder::Convert(const config::Lrn& lrn) {
  const double window = 2.0 * lrn.depth_radius() + 1;
  current_->forward_flops = static_cast<double>(current_->input_shape.elements()) * (window + 4);
  return LrnSpec{lrn.depth_radius(), lrn.bias(), lrn.alpha(), lrn.beta()};
}

template <typename M>
void GraphBuilder::AddScaleAndShift(const M& norm) {
  const int64_t channels = current_->input_shape.channels;
  const auto add = [&](const char* suffix, Variable::Kind kind, const config::Variable& settings,
                       float initial) {
    return AddVariable(suffix, kind, {channels}, {1, 1}, settings, Constant(initial));
  };
  current_->scale = add("scale", Variable::Kind::kScale, norm.scale(), 1);
  current_->shift = add("shift", Variable::Kind::kShift, norm.shift(), 0);
  // One sum, one squared distance from the mean, and two multiply-adds for the normalisation.
  current_->forward_flops = 7.0 * static_cast<double>(current_->input_shape.elements());
}
template void GraphBuilder::AddScaleAndShift(const config::LayerNorm& norm);

LayerSpec GraphBuilder::Convert(const config::BatchNorm& norm) {
  AddScaleAndShift(norm);
  const auto add_statistic = [&](const char* suffix, float initial) {
    const int index = AddVariable(suffix, Variable::Kind::kStatistic,
                                  {current_->input_shape.channels}, {1, 1}, {}, Constant(initial));
    variables[index].weight_decay = 0;
    variables[index].statistic_momentum = norm.momentum();
    return index;
  };
  current_->running_mean = add_statistic("running_mean", 0);
  current_->running_variance = add_statistic("running_variance", 1);
  return BatchNormSpec{norm.momentum(), norm.epsilon(),
                       norm.running_variance() == config::BatchNorm::UNBIASED};
}

LayerSpec GraphBuilder::Convert(const config::GroupNorm& norm) {
  const int64_t channels = current_->input_shape.channels;
  if (channels % norm.groups() != 0) {
    Fail("{} channels cannot be split into {} equal groups", channels, norm.groups());
  }
  if (current_->input_shape.elements() == norm.groups()) {
    Fail("a group of one value would always become the shift: expected fewer groups or an image");
  }
  AddScaleAndShift(norm);
  return GroupNormSpec{norm.groups(), norm.epsilon(), /*per_pixel=*/false};
}

LayerSpec GraphBuilder::ConvertAdd() {
  const Shape& first = current_->input_shape;
  for (const int input : current_->inputs) {
    if (OutputOf(input) == first) continue;
    Fail("its inputs must have the same shape, but \"{}\" is {} and \"{}\" is {}",
         NameOf(current_->inputs[0]), first.ToString(), NameOf(input), OutputOf(input).ToString());
  }
  current_->forward_flops =
      static_cast<double>(current_->inputs.size() - 1) * static_cast<double>(first.elements());
  return AddSpec{};
}

LayerSpec GraphBuilder::ConvertConcat() {
  const Shape& first = current_->input_shape;
  ConcatSpec spec;
  int64_t channels = 0;
  for (const int input : current_->inputs) {
    const Shape& shape = OutputOf(input);
    if (shape.height != first.height || shape.width != first.width) {
      Fail("its inputs must have the same height and width, but \"{}\" is {} and \"{}\" is {}",
           NameOf(current_->inputs[0]), first.ToString(), NameOf(input), shape.ToString());
    }
    spec.channels.push_back(shape.channels);
    channels += shape.channels;
  }
  current_->output_shape = {first.height, first.width, channels};
  return spec;
}

void GraphBuilder::PrepareLoss(double flops_per_output, int64_t least_outputs) {
  const Shape& in = current_->input_shape;
  if (in.height != 1 || in.width != 1) {
    Fail(
        "expected one row of logits, got {}: put a dense, global_avg_pool or flatten layer before "
        "it",
        in.ToString());
  }
  if (in.channels < least_outputs) {
    Fail("expected at least {} classes, got {}", least_outputs, in.channels);
  }
  current_->forward_flops = flops_per_output * static_cast<double>(in.channels);
}

void GraphBuilder::RefuseProbabilities(const char* function) const {
  // For each layer, the one that makes probabilities of what it passes on; kData if there is none.
  std::vector<int> makers;
  const auto maker_of = [&](int layer) {
    return layer == Layer::kData ? Layer::kData : makers[static_cast<size_t>(layer)];
  };
  for (const Layer& layer : layers) {
    makers.push_back(Layer::kData);
    if (HoldsAny<SoftmaxSpec, SigmoidSpec>(layer.spec)) {
      makers.back() = static_cast<int>(makers.size()) - 1;
    } else if (HoldsAny<FlattenSpec, DropoutSpec, GlobalAvgPoolSpec, AddSpec, ConcatSpec>(
                   layer.spec)) {
      // A sum or row of which a part is no probability may be meant as logits.
      const auto makes_none = [&](int input) { return maker_of(input) == Layer::kData; };
      if (std::ranges::none_of(layer.inputs, makes_none)) {
        makers.back() = maker_of(layer.inputs.back());
      }
    }
  }
  const int maker = maker_of(current_->inputs[0]);
  if (maker == Layer::kData) return;
  Fail(
      "expected logits, because this loss applies the {} itself, got the probabilities of layer "
      "\"{}\" ({}), which would make training slow and inaccurate: remove that layer",
      function, NameOf(maker), layers[static_cast<size_t>(maker)].kind);
}

}  // namespace muster
