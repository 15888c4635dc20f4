#include "common/graph/layer_specs.h"

#include <fmt/core.h>

namespace muster {
namespace {

template <typename S>
std::string Window(const S& s) {
  return fmt::format("kernel {}x{} stride {}x{} pads {},{},{},{}", s.kernel_height, s.kernel_width,
                     s.stride_height, s.stride_width, s.pads.top, s.pads.bottom, s.pads.left,
                     s.pads.right);
}

}  // namespace

const char* Name(Activation activation) {
  switch (activation) {
    case Activation::kNone:
      return "";
    case Activation::kRelu:
      return "relu";
    case Activation::kRelu6:
      return "relu6";
  }
  return "";
}

std::string Conv2dSpec::numbers() const {
  return fmt::format("filters {} {} groups {}", filters, Window(*this), groups);
}

std::string DenseSpec::numbers() const { return fmt::format("units {}", units); }

std::string PoolSpec::numbers() const { return Window(*this); }

std::string ReflectPadSpec::numbers() const { return fmt::format("pad {}x{}", rows, columns); }

std::string LrnSpec::numbers() const {
  return fmt::format("depth_radius {} bias {} alpha {} beta {}", depth_radius, bias, alpha, beta);
}

std::string DropoutSpec::numbers() const { return fmt::format("rate {}", rate); }

std::string BatchNormSpec::numbers() const {
  return fmt::format("momentum {} epsilon {} unbiased {}", momentum, epsilon, unbiased);
}

std::string GroupNormSpec::numbers() const {
  return fmt::format("groups {} epsilon {} per_pixel {}", groups, epsilon, per_pixel);
}

std::string GeluSpec::numbers() const { return fmt::format("tanh {}", tanh); }

std::string LeakyReluSpec::numbers() const { return fmt::format("slope {}", slope); }

std::string SoftmaxCrossEntropySpec::numbers() const {
  return fmt::format("label_smoothing {}", label_smoothing);
}

LayerTraits TraitsOf(const LayerSpec& spec) {
  return std::visit(
      [](const auto& s) -> LayerTraits {
        if constexpr (requires { s.traits(); }) return s.traits();
        return {};
      },
      spec);
}

std::string NumbersOf(const LayerSpec& spec) {
  return std::visit(
      [](const auto& s) -> std::string {
        if constexpr (requires { s.numbers(); }) return s.numbers();
        return "";
      },
      spec);
}

}  // namespace muster
