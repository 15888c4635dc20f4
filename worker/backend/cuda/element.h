// The activation types in host code.
#pragma once

#include <library_types.h>

#include <memory>
#include <utility>

#include "common/base/element_type.h"

struct __nv_bfloat16;

namespace muster::cuda {

using Bf16 = __nv_bfloat16;

inline cudaDataType_t CudaTypeOf(ElementType type) {
  return type == ElementType::kBFloat16 ? CUDA_R_16BF : CUDA_R_32F;
}

// Makes an object of class Of<float> or Of<Bf16>.
template <typename Base, template <typename> typename Of, typename... Arguments>
std::unique_ptr<Base> MakeFor(ElementType type, Arguments&&... arguments) {
  if (type == ElementType::kBFloat16) {
    return std::make_unique<Of<Bf16>>(std::forward<Arguments>(arguments)...);
  }
  return std::make_unique<Of<float>>(std::forward<Arguments>(arguments)...);
}

}  // namespace muster::cuda
