#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/ops.h"

namespace muster::cuda {
namespace {

// The base of both: state holds a result for each sample, and what a loss keeps behind them.
template <typename T>
class TypedLoss : public LossOp {
 public:
  explicit TypedLoss(const OpRequest& request)
      : card_(request.card),
        batch_(static_cast<int>(request.options.batch)),
        classes_(InputCount(request) / batch_),
        after_relu_(request.options.input_is_relu) {}

  size_t state_bytes() const override { return ResultsBytes(); }

 protected:
  size_t ResultsBytes() const {
    return (static_cast<size_t>(batch_) * sizeof(SampleLoss) + 63) / 64 * 64;
  }
  SampleLoss* Results(const LossArgs& args) const { return static_cast<SampleLoss*>(args.state); }

  Card& card_;
  const int batch_, classes_;
  const bool after_relu_;
};

template <typename T>
class SoftmaxCrossEntropyOp : public TypedLoss<T> {
 public:
  explicit SoftmaxCrossEntropyOp(const OpRequest& request)
      : TypedLoss<T>(request),
        smoothing_(std::get<SoftmaxCrossEntropySpec>(request.layer.spec).label_smoothing) {}

  size_t state_bytes() const override {
    return this->ResultsBytes() +
           static_cast<size_t>(this->batch_) * static_cast<size_t>(this->classes_) * sizeof(float);
  }
  void Forward(const LossArgs& args, LossSums* sums, int32_t* predictions) override {
    SoftmaxCrossEntropy(this->card_.target(), static_cast<const T*>(args.logits), args.labels,
                        smoothing_, Probabilities(args), this->Results(args), predictions,
                        this->batch_, this->classes_);
    AddUpLosses(this->card_.target(), this->Results(args), sums, this->batch_);
  }
  void Backward(const LossArgs& args, float scale, void* logits_gradient) override {
    SoftmaxCrossEntropyGradient(this->card_.target(), static_cast<const T*>(args.logits),
                                args.labels, smoothing_, Probabilities(args), scale,
                                this->after_relu_, static_cast<T*>(logits_gradient), this->batch_,
                                this->classes_);
  }

 private:
  float* Probabilities(const LossArgs& args) const {
    return reinterpret_cast<float*>(static_cast<std::byte*>(args.state) + this->ResultsBytes());
  }

  const float smoothing_;
};

template <typename T>
class MeanSquaredErrorOp : public TypedLoss<T> {
 public:
  using TypedLoss<T>::TypedLoss;

  void Forward(const LossArgs& args, LossSums* sums, int32_t* predictions) override {
    MeanSquaredError(this->card_.target(), static_cast<const T*>(args.logits), args.labels,
                     this->Results(args), predictions, this->batch_, this->classes_);
    AddUpLosses(this->card_.target(), this->Results(args), sums, this->batch_);
  }
  void Backward(const LossArgs& args, float scale, void* logits_gradient) override {
    MeanSquaredErrorGradient(this->card_.target(), static_cast<const T*>(args.logits), args.labels,
                             scale, this->after_relu_, static_cast<T*>(logits_gradient),
                             this->batch_, this->classes_);
  }
};

}  // namespace

std::unique_ptr<LossOp> Make(const SoftmaxCrossEntropySpec&, const OpRequest& request) {
  return MakeFor<LossOp, SoftmaxCrossEntropyOp>(request.card.activation_type(), request);
}
std::unique_ptr<LossOp> Make(const MeanSquaredErrorSpec&, const OpRequest& request) {
  return MakeFor<LossOp, MeanSquaredErrorOp>(request.card.activation_type(), request);
}

}  // namespace muster::cuda
