// The activation types in host code.
#pragma once

#include <library_types.h>

#include <memory>
#include <type_traits>
#include <utility>

#include "common/base/element_type.h"

struct __half;
struct __nv_bfloat16;

namespace muster::cuda {

using Bf16 = __nv_bfloat16;
using Fp16 = __half;

// Expands X(T) for each activation type.
#define MUSTER_FOR_ELEMENTS(X) X(float) X(Bf16) X(Fp16)

inline cudaDataType_t CudaTypeOf(ElementType type) {
  if (type == ElementType::kFloat16) return CUDA_R_16F;
  return type == ElementType::kBFloat16 ? CUDA_R_16BF : CUDA_R_32F;
}

// Calls body(std::type_identity<T>()) with T of this type.
template <typename Body>
decltype(auto) WithElement(ElementType type, const Body& body) {
  if (type == ElementType::kFloat16) return body(std::type_identity<Fp16>());
  if (type == ElementType::kBFloat16) return body(std::type_identity<Bf16>());
  return body(std::type_identity<float>());
}

// Makes an object of class Of<T> with T of this type.
template <typename Base, template <typename> typename Of, typename... Arguments>
std::unique_ptr<Base> MakeFor(ElementType type, Arguments&&... arguments) {
  return WithElement(type, [&]<typename T>(std::type_identity<T>) -> std::unique_ptr<Base> {
    return std::make_unique<Of<T>>(std::forward<Arguments>(arguments)...);
  });
}

}  // namespace muster::cuda
