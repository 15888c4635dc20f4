// Elementwise layers that could not be fused into the preceding layer. Compiled with
// -ffp-contract=off (see smooth_functions.h).
#include <bit>
#include <type_traits>
#include <vector>

#include "common/base/error.h"
#include "worker/backend/cpu/kernels.h"
#include "worker/backend/cpu/ops.h"
#include "worker/backend/cpu/smooth_functions.h"

namespace muster::cpu {
namespace {

// y = Value(layer, x), dx = Gradient(layer, v, dy), where v is what the layer's backward reads: x
// or y. Layers with LayerTraits::passes_gradient_on have no Gradient. std::max and std::clamp are
// avoided because NaN must propagate.
float Value(const ReluSpec&, float x) { return x < 0 ? 0.0f : x; }

float Value(const Relu6Spec&, float x) {
  const float positive = x < 0 ? 0.0f : x;
  return positive > 6 ? 6.0f : positive;
}
float Gradient(const Relu6Spec&, float y, float dy) { return (y > 0) & (y < 6) ? dy : 0.0f; }

// These are types of their own, because a loop that chooses between two formulas is four times
// slower.
struct ExactGelu : GeluSpec {};  // x Φ(x)
struct TanhGelu : GeluSpec {};   // x sigmoid(2 u) with u = √(2/π) (x + 0.044715 x³)

float Value(const ExactGelu&, double x) { return static_cast<float>(x * NormalAt(x).below); }
float Gradient(const ExactGelu&, double x, float dy) {
  const Normal normal = NormalAt(x);
  return static_cast<float>(dy * (normal.below + x * normal.density));
}

constexpr double kRootOfTwoOverPi = 0.7978845608028654, kCubic = 0.044715;
double TwiceU(double x) { return 2 * kRootOfTwoOverPi * (x + kCubic * x * x * x); }

float Value(const TanhGelu&, double x) { return static_cast<float>(x * Sigmoid(TwiceU(x))); }
float Gradient(const TanhGelu&, double x, float dy) {
  const double share = Sigmoid(TwiceU(x));
  const double slope = 2 * kRootOfTwoOverPi * (1 + 3 * kCubic * x * x);
  return static_cast<float>(dy * (share + x * (share * (1 - share)) * slope));
}

float Value(const SiluSpec&, double x) { return static_cast<float>(x * Sigmoid(x)); }
float Gradient(const SiluSpec&, double x, float dy) {
  const double share = Sigmoid(x);
  return static_cast<float>(dy * share * (1 + x * (1 - share)));
}

float Value(const SigmoidSpec&, double x) { return static_cast<float>(Sigmoid(x)); }
float Gradient(const SigmoidSpec&, float y, float dy) { return dy * (y * (1 - y)); }

float Value(const TanhSpec&, double x) { return static_cast<float>(Tanh(x)); }
float Gradient(const TanhSpec&, double y, float dy) { return static_cast<float>(dy * (1 - y * y)); }

float Value(const LeakyReluSpec& leaky, float x) { return x < 0 ? leaky.slope * x : x; }
float Gradient(const LeakyReluSpec& leaky, float y, float dy) {
  return y > 0 ? dy : leaky.slope * dy;
}

// The values and slopes of a function at all 65,536 numbers in bfloat16. Reading them is ten times
// faster than the formulas, and values are rounded only once. The slopes of sigmoid and tanh follow
// from their rounded results: where these round to 1, the slope is 0.
template <typename Spec>
struct Table {
  Table() : values(size_t{1} << 16), slopes(values.size()) {
    for (size_t i = 0; i < values.size(); ++i) {
      const float x = std::bit_cast<Bf16>(static_cast<uint16_t>(i));
      values[i] = Value(Spec{}, x);
      slopes[i] = Gradient(Spec{}, x, 1.0f);
    }
  }
  static const Table& Get() {
    static const Table table;
    return table;
  }
  static size_t Index(Bf16 x) { return std::bit_cast<uint16_t>(x); }

  std::vector<Bf16> values;
  std::vector<float> slopes;
};

template <typename Spec>
class Tabulated : public TypedOp<Bf16> {
 public:
  explicit Tabulated(int64_t elements) : table_(Table<Spec>::Get()), elements_(elements) {}

  void ForwardTyped(const TypedForwardArgs<Bf16>& args) override {
    ForElements(elements_, [x = args.input, y = args.output, values = table_.values.data()](
                               int64_t i) { y[i] = values[Table<Spec>::Index(x[i])]; });
  }
  void BackwardTyped(const TypedBackwardArgs<Bf16>& args) override {
    const bool of_input = Spec{}.traits().backward_reads_input == LayerTraits::Reads::kAlways;
    ForElements(elements_, [v = of_input ? args.input : args.output, dy = args.output_gradient,
                            dx = args.input_gradient, slopes = table_.slopes.data()](int64_t i) {
      dx[i] = dy[i] * slopes[Table<Spec>::Index(v[i])];
    });
  }

 private:
  const Table<Spec>& table_;
  const int64_t elements_;
};

// Whether the formulas take long. These functions have no parameters.
template <typename Spec>
constexpr bool kIsTabulated = std::is_same_v<Spec, ExactGelu> || std::is_same_v<Spec, TanhGelu> ||
                              std::is_same_v<Spec, SiluSpec> || std::is_same_v<Spec, SigmoidSpec> ||
                              std::is_same_v<Spec, TanhSpec>;

template <typename T, ElementwiseSpec Spec>
class Elementwise : public TypedOp<T> {
 public:
  Elementwise(const Spec& spec, int64_t elements) : spec_(spec), elements_(elements) {}

  void ForwardTyped(const TypedForwardArgs<T>& args) override {
    ForElements(elements_, [x = args.input, y = args.output, spec = spec_](int64_t i) {
      y[i] = Value(spec, x[i]);
    });
  }

  void BackwardTyped([[maybe_unused]] const TypedBackwardArgs<T>& args) override {
    if constexpr (requires { Gradient(spec_, 0.0f, 0.0f); }) {
      const bool of_input = spec_.traits().backward_reads_input == LayerTraits::Reads::kAlways;
      ForElements(elements_, [v = of_input ? args.input : args.output, dy = args.output_gradient,
                              dx = args.input_gradient,
                              spec = spec_](int64_t i) { dx[i] = Gradient(spec, v[i], dy[i]); });
    } else {
      MUSTER_CHECK(!"a layer that passes its gradient on has no backward");
    }
  }

 private:
  const Spec spec_;
  const int64_t elements_;
};

template <typename Spec>
std::unique_ptr<Op> MakeElementwise(const Spec& spec, const OpRequest& request) {
  const int64_t elements = request.options.batch * request.layer.input_shape.elements();
  if constexpr (kIsTabulated<Spec>) {
    if (request.bf16) return std::make_unique<Tabulated<Spec>>(elements);
  } else {
    if (request.bf16) return std::make_unique<Elementwise<Bf16, Spec>>(spec, elements);
  }
  return std::make_unique<Elementwise<float, Spec>>(spec, elements);
}

}  // namespace

template <ElementwiseSpec Spec>
std::unique_ptr<Op> Make(const Spec& spec, const OpRequest& request) {
  if constexpr (std::is_same_v<Spec, GeluSpec>) {
    if (spec.tanh) return MakeElementwise(TanhGelu{spec}, request);
    return MakeElementwise(ExactGelu{spec}, request);
  } else {
    return MakeElementwise(spec, request);
  }
}

template std::unique_ptr<Op> Make(const ReluSpec&, const OpRequest&);
template std::unique_ptr<Op> Make(const Relu6Spec&, const OpRequest&);
template std::unique_ptr<Op> Make(const GeluSpec&, const OpRequest&);
template std::unique_ptr<Op> Make(const SiluSpec&, const OpRequest&);
template std::unique_ptr<Op> Make(const SigmoidSpec&, const OpRequest&);
template std::unique_ptr<Op> Make(const TanhSpec&, const OpRequest&);
template std::unique_ptr<Op> Make(const LeakyReluSpec&, const OpRequest&);

}  // namespace muster::cpu
