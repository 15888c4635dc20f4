#include <type_traits>

#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/ops.h"

namespace muster::cuda {
namespace {

// State holds a result for each sample, followed by the probabilities of a softmax.
template <typename T, typename Spec>
class LabelLossOp : public LossOp {
 public:
  explicit LabelLossOp(const OpRequest& request)
      : card_(request.card),
        spec_(std::get<Spec>(request.layer.spec)),
        samples_(static_cast<int>(request.options.batch)),
        outputs_(InputCount(request) / samples_),
        first_class_(static_cast<int>(request.layer.first_class())),
        after_relu_(request.options.input_is_relu) {}

  size_t state_bytes() const override {
    const bool keeps = std::is_same_v<Spec, SoftmaxCrossEntropySpec>;
    const auto samples = static_cast<size_t>(samples_);
    return ResultsBytes() + (keeps ? samples * static_cast<size_t>(outputs_) * sizeof(float) : 0);
  }
  void Forward(const LossArgs& args, LossSums* sums, int32_t* predictions) override {
    const LossBatch batch = Batch(args);
    SampleLosses<T>(card_.target(), spec_, args, batch, predictions);
    AddUpLosses(card_.target(), batch.results, sums, samples_);
  }
  void Backward(const LossArgs& args, float scale, void* logits_gradient) override {
    LossGradient(card_.target(), spec_, args, Batch(args), scale, after_relu_,
                 static_cast<T*>(logits_gradient));
  }

 private:
  size_t ResultsBytes() const {
    return (static_cast<size_t>(samples_) * sizeof(SampleLoss) + 63) / 64 * 64;
  }
  LossBatch Batch(const LossArgs& args) const {
    auto* const state = static_cast<std::byte*>(args.state);
    return {.samples = samples_,
            .outputs = outputs_,
            .first_class = first_class_,
            .results = reinterpret_cast<SampleLoss*>(state),
            .probabilities = reinterpret_cast<float*>(state + ResultsBytes())};
  }

  Card& card_;
  const Spec spec_;
  const int samples_, outputs_, first_class_;
  const bool after_relu_;
};

// State holds a result for each sample.
template <typename T>
class ValueLossOp : public LossOp {
 public:
  explicit ValueLossOp(const OpRequest& request)
      : card_(request.card),
        samples_(static_cast<int>(request.options.batch)),
        after_relu_(request.options.input_is_relu) {}

  size_t state_bytes() const override { return static_cast<size_t>(samples_) * sizeof(SampleLoss); }
  void Forward(const LossArgs& args, LossSums* sums, int32_t* predictions) override {
    auto* const results = static_cast<SampleLoss*>(args.state);
    ValueLosses<T>(card_.target(), args, results, predictions, samples_);
    AddUpLosses(card_.target(), results, sums, samples_);
  }
  void Backward(const LossArgs& args, float scale, void* logits_gradient) override {
    ValueGradient(card_.target(), args, scale, after_relu_, static_cast<T*>(logits_gradient),
                  samples_);
  }

 private:
  Card& card_;
  const int samples_;
  const bool after_relu_;
};

std::unique_ptr<LossOp> MakeValueLoss(const OpRequest& request) {
  return MakeFor<LossOp, ValueLossOp>(request.card.activation_type(), request);
}

template <typename Spec>
std::unique_ptr<LossOp> MakeLabelLoss(const OpRequest& request) {
  return WithElement(request.card.activation_type(),
                     [&]<typename T>(std::type_identity<T>) -> std::unique_ptr<LossOp> {
                       return std::make_unique<LabelLossOp<T, Spec>>(request);
                     });
}

}  // namespace

std::unique_ptr<LossOp> Make(const SoftmaxCrossEntropySpec&, const OpRequest& request) {
  return MakeLabelLoss<SoftmaxCrossEntropySpec>(request);
}
std::unique_ptr<LossOp> Make(const MeanSquaredErrorSpec&, const OpRequest& request) {
  if (request.layer.is_of_values()) return MakeValueLoss(request);
  return MakeLabelLoss<MeanSquaredErrorSpec>(request);
}
std::unique_ptr<LossOp> Make(const SigmoidCrossEntropySpec&, const OpRequest& request) {
  return MakeLabelLoss<SigmoidCrossEntropySpec>(request);
}

}  // namespace muster::cuda
