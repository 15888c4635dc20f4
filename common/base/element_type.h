// Number formats, and conversions and sums rounded to them.
//
//   BF16  8 bits of exponent, 8 of significand (one of them implied): relative rounding error up to
//         2^-8 = 0.4 %, the range of a float
//   FP16  IEEE 754 binary16: 2^-11 = 0.05 % between 6.1e-5 and 65504, less precise below, zero
//         below 3e-8, infinite above
//
// Conversions round to nearest, ties to even, like the processor's own, so all instruction sets
// give the same bits. A NaN stays a NaN.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace muster {

enum class ElementType { kFloat32, kBFloat16, kFloat16 };

constexpr size_t BytesOf(ElementType type) { return type == ElementType::kFloat32 ? 4 : 2; }

// Supports 16-bit types only. `to` must have room for from.size() elements. Returns nonzero if a
// rounded value is not finite.
uint32_t ToHalves(ElementType type, std::span<const float> from, uint16_t* to);
void FromHalves(ElementType type, std::span<const uint16_t> from, float* to);
// The same with non-temporal stores, which do not fetch the cache lines first. Use it for many
// values that are not read soon. `to` must be 32-byte aligned.
void FromHalvesPastCache(ElementType type, std::span<const uint16_t> from, float* to);

// Rounds in place to values that `type` can represent. FP32: no change.
void RoundTo(ElementType type, std::span<float> values);
// to = RoundTo(a + b) for `count` floats; `to` may be `a` or `b`.
void AddRounded(ElementType type, const float* a, const float* b, float* to, size_t count);
// The same for 16-bit values.
void AddHalves(ElementType type, const uint16_t* a, const uint16_t* b, float* to, size_t count);

}  // namespace muster
