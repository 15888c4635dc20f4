#include "worker/backend/cpu/in_floats.h"

#include "common/base/error.h"
#include "worker/backend/cpu/bf16.h"
#include "worker/backend/cpu/kernels.h"

namespace muster::cpu {
namespace {

size_t Padded(int64_t floats) { return static_cast<size_t>((floats + 15) / 16 * 16); }

void ToFloats(const void* from, int64_t count, float* to) {
  const auto* const values = static_cast<const Bf16*>(from);
  ForElements(count, [=](int64_t i) { to[i] = values[i]; });
}

void FromFloats(const float* from, int64_t count, void* to) {
  auto* const values = static_cast<Bf16*>(to);
  ForElements(count, [=](int64_t i) { values[i] = from[i]; });
}

// An op with one input. The copies lie in scratch, after the op's own. Only those that are needed
// have memory.
class OpInFloats : public Op {
 public:
  OpInFloats(const Layer& layer, const OpOptions& options, std::unique_ptr<Op> op)
      : op_(std::move(op)),
        float_output_(options.float_logits),
        trains_(options.mode == Mode::kTraining),
        input_gradient_(trains_ && options.input_gradient),
        inputs_(options.batch * layer.input_shape.elements()),
        outputs_(options.batch * layer.output_shape.elements()),
        own_floats_(Padded(static_cast<int64_t>(op_->scratch_bytes() / sizeof(float)))) {
    MUSTER_CHECK(op_->scratch_bytes() % sizeof(float) == 0);
  }

  size_t state_bytes() const override { return op_->state_bytes(); }
  size_t scratch_bytes() const override {
    const size_t outputs = float_output_ ? 0 : trains_ ? 2 : 1;
    const size_t inputs = input_gradient_ ? 2 : 1;
    return (own_floats_ + inputs * Padded(inputs_) + outputs * Padded(outputs_)) * sizeof(float);
  }

  void Forward(const ForwardArgs& args) override {
    MUSTER_CHECK(args.inputs.size() <= 1);
    const Copies copies = CopiesIn(args.scratch);
    ToFloats(args.input, inputs_, copies.input);
    ForwardArgs floats = args;
    floats.input = copies.input;
    floats.inputs = {};
    if (!float_output_) floats.output = copies.output;
    op_->Forward(floats);
    if (!float_output_) FromFloats(copies.output, outputs_, args.output);
  }

  void Backward(const BackwardArgs& args) override {
    const Copies copies = CopiesIn(args.scratch);
    BackwardArgs floats = args;
    floats.input = copies.input;
    floats.input_gradients = {};
    floats.input_gradient = input_gradient_ ? copies.input_gradient : nullptr;
    if (args.input != nullptr) ToFloats(args.input, inputs_, copies.input);
    if (!float_output_) {
      floats.output = copies.output;
      floats.output_gradient = copies.output_gradient;
      if (args.output != nullptr) ToFloats(args.output, outputs_, copies.output);
      ToFloats(args.output_gradient, outputs_, copies.output_gradient);
    }
    op_->Backward(floats);
    if (input_gradient_) FromFloats(copies.input_gradient, inputs_, args.input_gradient);
  }

 private:
  struct Copies {
    float *output, *output_gradient, *input, *input_gradient;
  };
  Copies CopiesIn(void* scratch) const {
    float* const input = Floats(scratch) + own_floats_;
    float* const output = input + (input_gradient_ ? 2 : 1) * Padded(inputs_);
    return {output, output + Padded(outputs_), input, input + Padded(inputs_)};
  }

  const std::unique_ptr<Op> op_;
  const bool float_output_, trains_, input_gradient_;
  const int64_t inputs_, outputs_;  // elements of the batch
  const size_t own_floats_;
};

// The copies lie in the state, after the loss's own: [logits] [their gradient].
class LossOfFloats : public LossOp {
 public:
  LossOfFloats(int64_t logits, std::unique_ptr<LossOp> loss)
      : loss_(std::move(loss)),
        logits_(logits),
        own_bytes_((loss_->state_bytes() + 63) / 64 * 64) {}

  size_t state_bytes() const override { return own_bytes_ + 2 * Padded(logits_) * sizeof(float); }
  void Forward(const LossArgs& args, LossSums* sums, int32_t* predictions) override {
    ToFloats(args.logits, logits_, Logits(args));
    loss_->Forward(WithFloats(args), sums, predictions);
  }
  void Backward(const LossArgs& args, float scale, void* logits_gradient) override {
    float* const gradient = Logits(args) + Padded(logits_);
    loss_->Backward(WithFloats(args), scale, gradient);
    FromFloats(gradient, logits_, logits_gradient);
  }

 private:
  float* Logits(const LossArgs& args) const {
    return reinterpret_cast<float*>(static_cast<std::byte*>(args.state) + own_bytes_);
  }
  LossArgs WithFloats(const LossArgs& args) const {
    LossArgs floats = args;
    floats.logits = Logits(args);
    return floats;
  }

  const std::unique_ptr<LossOp> loss_;
  const int64_t logits_;
  const size_t own_bytes_;
};

}  // namespace

std::unique_ptr<Op> InFloats(const Layer& layer, const OpOptions& options, std::unique_ptr<Op> op) {
  return std::make_unique<OpInFloats>(layer, options, std::move(op));
}

std::unique_ptr<LossOp> LossInFloats(const Layer& layer, const OpOptions& options,
                                     std::unique_ptr<LossOp> loss) {
  if (options.float_logits) return loss;
  return std::make_unique<LossOfFloats>(options.batch * layer.input_shape.elements(),
                                        std::move(loss));
}

}  // namespace muster::cpu
