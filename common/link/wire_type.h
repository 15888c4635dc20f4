// The number format in which gradients and weights travel: 32-bit floats as they are, or rounded to
// 16 bits.
//
//   BF16  8 bits of exponent, 8 of significand (one of them implied): relative rounding error up to
//         2^-8 = 0.4 %, the range of a float
//   FP16  IEEE 754 binary16: 2^-11 = 0.05 % between 6.1e-5 and 65504, less precise below, zero
//         below 3e-8, infinite above
//
// Rounding is to nearest, ties to even, as the processor's own conversions do it: the same bits
// from every instruction set. A NaN stays a NaN.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "proto/config_fwd.h"
#include "proto/wire.pb.h"

namespace muster {

using WireType = wire::TensorType;

WireType WireTypeOf(const config::Cluster& cluster);
constexpr size_t BytesOf(WireType type) { return type == wire::FP32 ? 4 : 2; }

// `to` has as many elements as `from`. Only 16-bit types. Nonzero if a rounded value is not finite.
uint32_t Narrow(WireType type, std::span<const float> from, uint16_t* to);
void Widen(WireType type, std::span<const uint16_t> from, float* to);
// The same past the cache, for many values that are not read soon: their lines are not read first.
// `to` is 32-byte aligned.
void WidenPastCache(WireType type, std::span<const uint16_t> from, float* to);

// What a value becomes by travelling; FP32: what it was. In place. This is also where sums of
// gradients are rounded: every node of the tree of slices, whoever adds it, is rounded once, so
// that the bits do not depend on which part of the tree a worker adds by itself.
void RoundToWire(WireType type, std::span<float> values);
// to = RoundToWire(a + b), of `count` floats; `to` may be `a` or `b`.
void AddOnWire(WireType type, const float* a, const float* b, float* to, size_t count);
// The same of values that are still in 16 bits.
void AddHalves(WireType type, const uint16_t* a, const uint16_t* b, float* to, size_t count);

}  // namespace muster
