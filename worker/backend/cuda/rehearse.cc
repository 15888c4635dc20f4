#include "worker/backend/cuda/rehearse.h"

#include <memory>
#include <vector>

#include "common/base/error.h"

namespace muster::cuda {
namespace {

struct VariableCounts {
  int64_t weights = 0, bias = 0;
};

VariableCounts CountsOf(const Layer& layer) {
  if (const auto* dense = std::get_if<DenseSpec>(&layer.spec)) {
    return {dense->units * layer.input_shape.elements(), dense->units};
  }
  const auto& conv = std::get<Conv2dSpec>(layer.spec);
  return {conv.filters * conv.kernel_height * conv.kernel_width *
              (layer.input_shape.channels / conv.groups),
          conv.filters};
}

// Zeros on the card.
class Zeros {
 public:
  explicit Zeros(Backend& backend) : backend_(backend) {}

  template <typename T = void>
  T* Make(size_t bytes) {
    if (bytes == 0) return nullptr;
    buffers_.push_back(backend_.Allocate(bytes));
    backend_.Zero(buffers_.back()->data(), bytes);
    return static_cast<T*>(buffers_.back()->data());
  }
  float* Floats(int64_t count) { return Make<float>(static_cast<size_t>(count) * sizeof(float)); }

 private:
  Backend& backend_;
  std::vector<std::unique_ptr<DeviceBuffer>> buffers_;
};

struct Arguments {
  ForwardArgs forward;
  BackwardArgs backward;
};

Arguments MakeArguments(Zeros& zeros, const Backend& backend, const Layer& layer,
                        const OpOptions& options, const Op& op) {
  const size_t size = BytesOf(backend.activation_type());
  const auto activations = [&](const Shape& shape) {
    return zeros.Make(static_cast<size_t>(options.batch * shape.elements()) * size);
  };
  const VariableCounts counts = CountsOf(layer);
  Arguments made;
  ForwardArgs& forward = made.forward;
  forward.input = activations(layer.input_shape);
  forward.output = activations(layer.output_shape);
  forward.weights = zeros.Floats(counts.weights);
  forward.bias = zeros.Floats(counts.bias);
  forward.weights_version = 1;
  forward.state = zeros.Make(op.state_bytes());
  forward.scratch = zeros.Make(op.scratch_bytes());
  if (options.mode != Mode::kTraining) return made;
  BackwardArgs& backward = made.backward;
  backward.input = forward.input;
  backward.output = forward.output;
  backward.output_gradient = activations(layer.output_shape);
  if (options.input_gradient) backward.input_gradient = activations(layer.input_shape);
  backward.weights = forward.weights;
  backward.bias = forward.bias;
  backward.weights_version = forward.weights_version;
  backward.weights_gradient = zeros.Floats(counts.weights);
  backward.bias_gradient = zeros.Floats(counts.bias);
  backward.state = forward.state;
  backward.scratch = forward.scratch;
  return made;
}

}  // namespace

bool HasAlgorithms(const Layer& layer) {
  return std::holds_alternative<DenseSpec>(layer.spec) ||
         std::holds_alternative<Conv2dSpec>(layer.spec);
}

bool Rehearse(Backend& backend, const Layer& layer, const OpOptions& options, Op& op) {
  Zeros zeros(backend);
  const DrainAtExit drain{backend};
  Arguments arguments;
  try {
    arguments = MakeArguments(zeros, backend, layer, options, op);
  } catch (const Error&) {
    return false;  // the tower asks for less, or says what is missing
  }
  op.Forward(arguments.forward);
  if (options.mode == Mode::kTraining) op.Backward(arguments.backward);
  return true;
}

}  // namespace muster::cuda
