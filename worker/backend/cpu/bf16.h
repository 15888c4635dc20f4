// A number in bfloat16: the upper half of a float. Kernels load it as a float and round their
// result to it: to nearest, ties to even; a NaN stays a NaN (as in common/base/element_type.h).
// There is no arithmetic in bfloat16.
#pragma once

#include <bit>
#include <cstdint>

namespace muster::cpu {

class Bf16 {
 public:
  Bf16() = default;
  // Implicit, so that a kernel for floats is also one for Bf16.
  Bf16(float value) {  // NOLINT(google-explicit-constructor)
    const auto bits = std::bit_cast<uint32_t>(value);
    const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    const uint32_t quiet = bits >> 16 | 0x40;
    bits_ = static_cast<uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? quiet : rounded);
  }
  operator float() const {  // NOLINT(google-explicit-constructor)
    return std::bit_cast<float>(uint32_t{bits_} << 16);
  }

 private:
  uint16_t bits_;
};

static_assert(sizeof(Bf16) == 2);

}  // namespace muster::cpu
