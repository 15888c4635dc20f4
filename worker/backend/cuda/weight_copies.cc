#include "worker/backend/cuda/weight_copies.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "worker/backend/cuda/kernels.h"

namespace muster::cuda {

WeightCopy::~WeightCopy() {
  if (memory_) card_.Freed(bytes());
}

void WeightCopy::Allocate() {
  if (!memory_) memory_ = card_.Allocate(bytes());
}

void WeightCopy::Convert(const float* weights) {
  WithElement(card_.activation_type(), [&]<typename T>(std::type_identity<T>) {
    cuda::Convert(card_.target(), static_cast<T*>(memory_.get()), weights, count_);
  });
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
