// Weights in the type of the GPU's products: the original floats, or copies in 16 bits. There is
// one copy for each variable of a tower's layers. Each forward pass makes it anew, so that the work
// of a pass does not depend on earlier ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "worker/backend/cuda/card.h"
#include "worker/backend/cuda/element.h"
#include "worker/backend/op.h"

namespace muster::cuda {

class WeightCopy {
 public:
  WeightCopy(Card& card, int64_t count) : card_(card), count_(count) {}
  ~WeightCopy();
  WeightCopy(const WeightCopy&) = delete;

  size_t bytes() const { return static_cast<size_t>(count_) * 2; }
  void Allocate();
  // Queues the conversion.
  void Convert(const float* weights);
  const void* get() const { return memory_.get(); }

 private:
  Card& card_;
  const int64_t count_;
  DeviceMemory memory_;
};

class WeightCopies final : public WeightLayouts {
 public:
  enum class Kind { kWeights, kBias };

  explicit WeightCopies(Card& card) : card_(card) {}
  size_t bytes() const override;
  void Allocate() override;
  // Returns the copy for these arguments, which the first call makes. It is valid as long as this
  // object.
  WeightCopy& Copy(int layer, Kind kind, int64_t count);

 private:
  Card& card_;
  std::map<std::pair<int, Kind>, std::unique_ptr<WeightCopy>> copies_;
};

// The weights of an op: the copies of its tower, or the op's own copies if the tower has none.
template <typename T>
class TypedWeights {
 public:
  // Counts of 0 mean that there is no such variable.
  TypedWeights(Card& card, const OpOptions& options, int64_t weights, int64_t bias) {
    if constexpr (sizeof(T) == sizeof(float)) return;
    auto* copies = static_cast<WeightCopies*>(options.layouts);
    if (copies == nullptr) {
      own_ = std::make_unique<WeightCopies>(card);
      copies = own_.get();
    }
    weights_ = &copies->Copy(options.layer, WeightCopies::Kind::kWeights, weights);
    if (bias > 0) bias_ = &copies->Copy(options.layer, WeightCopies::Kind::kBias, bias);
    if (own_) own_->Allocate();
  }

  // Called by each forward pass before the copies are used.
  void Convert(const float* weights, const float* bias) const {
    if (weights_ != nullptr) weights_->Convert(weights);
    if (bias_ != nullptr) bias_->Convert(bias);
  }
  const T* Weights(const float* weights) const { return Typed(weights_, weights); }
  const T* Bias(const float* bias) const { return Typed(bias_, bias); }

 private:
  static const T* Typed(const WeightCopy* copy, const float* values) {
    if constexpr (sizeof(T) == sizeof(float)) {
      return values;
    } else {
      return copy == nullptr ? nullptr : static_cast<const T*>(copy->get());
    }
  }

  std::unique_ptr<WeightCopies> own_;
  WeightCopy *weights_ = nullptr, *bias_ = nullptr;
};

}  // namespace muster::cuda
