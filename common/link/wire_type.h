// The number format in which gradients and weights travel: 32-bit floats as they are, or rounded to
// 16 bits (common/base/element_type.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/base/element_type.h"
#include "proto/config_fwd.h"
#include "proto/wire.pb.h"

namespace muster {

using WireType = wire::TensorType;

WireType WireTypeOf(const config::Cluster& cluster);
ElementType ElementTypeOf(WireType type);
constexpr size_t BytesOf(WireType type) { return type == wire::FP32 ? 4 : 2; }

// As the functions on ElementType.
inline uint32_t Narrow(WireType type, std::span<const float> from, uint16_t* to) {
  return ToHalves(ElementTypeOf(type), from, to);
}
inline void Widen(WireType type, std::span<const uint16_t> from, float* to) {
  FromHalves(ElementTypeOf(type), from, to);
}
inline void WidenPastCache(WireType type, std::span<const uint16_t> from, float* to) {
  FromHalvesPastCache(ElementTypeOf(type), from, to);
}

// What a value becomes by travelling; FP32: what it was. In place. This is also where sums of
// gradients are rounded: every node of the tree of slices, whoever adds it, is rounded once, so
// that the bits do not depend on which part of the tree a worker adds by itself.
inline void RoundToWire(WireType type, std::span<float> values) {
  RoundTo(ElementTypeOf(type), values);
}
// to = RoundToWire(a + b), of `count` floats; `to` may be `a` or `b`.
inline void AddOnWire(WireType type, const float* a, const float* b, float* to, size_t count) {
  AddRounded(ElementTypeOf(type), a, b, to, count);
}
// The same of values that are still in 16 bits.
inline void AddHalves(WireType type, const uint16_t* a, const uint16_t* b, float* to,
                      size_t count) {
  AddHalves(ElementTypeOf(type), a, b, to, count);
}

}  // namespace muster
