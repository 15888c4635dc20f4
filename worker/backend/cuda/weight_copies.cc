#include "worker/backend/cuda/weight_copies.h"

#include <cuda_bf16.h>

#include "worker/backend/cuda/kernels.h"

namespace muster::cuda {

WeightCopy::~WeightCopy() {
  if (memory_) card_.Freed(bytes());
}

void WeightCopy::Allocate() {
  if (!memory_) memory_ = card_.Allocate(bytes());
}

const Bf16* WeightCopy::Of(const float* weights, int64_t version) {
  auto* const copy = static_cast<Bf16*>(memory_.get());
  if (converted_ && version == version_) return copy;
  Convert(card_.target(), copy, weights, count_);
  converted_ = true;
  version_ = version;
  return copy;
}

size_t WeightCopies::bytes() const {
  size_t sum = 0;
  for (const auto& [key, copy] : copies_) sum += copy->bytes();
  return sum;
}

void WeightCopies::Allocate() {
  for (const auto& [key, copy] : copies_) copy->Allocate();
}

WeightCopy& WeightCopies::Copy(int layer, Kind kind, int64_t count) {
  auto& copy = copies_[{layer, kind}];
  if (!copy) copy = std::make_unique<WeightCopy>(card_, count);
  return *copy;
}

}  // namespace muster::cuda
