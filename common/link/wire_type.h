// The number format of gradients and weights on the wire: 32-bit floats, or floats rounded to 16
// bits (common/base/element_type.h).
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

// These forward to the functions on ElementType.
inline uint32_t Narrow(WireType type, std::span<const float> from, uint16_t* to) {
  return ToHalves(ElementTypeOf(type), from, to);
}
inline void Widen(WireType type, std::span<const uint16_t> from, float* to) {
  FromHalves(ElementTypeOf(type), from, to);
}
inline void WidenPastCache(WireType type, std::span<const uint16_t> from, float* to) {
  FromHalvesPastCache(ElementTypeOf(type), from, to);
}

// Rounds values in place to the values that they would have on the wire; FP32: no change. Sums of
// gradients are also rounded this way: each node of the slice tree is rounded once, so that the
// bits do not depend on which part of the tree a worker adds.
inline void RoundToWire(WireType type, std::span<float> values) {
  RoundTo(ElementTypeOf(type), values);
}
// to = RoundToWire(a + b) for `count` floats; `to` may be `a` or `b`.
inline void AddOnWire(WireType type, const float* a, const float* b, float* to, size_t count) {
  AddRounded(ElementTypeOf(type), a, b, to, count);
}
// The same for 16-bit values.
inline void AddHalves(WireType type, const uint16_t* a, const uint16_t* b, float* to,
                      size_t count) {
  AddHalves(ElementTypeOf(type), a, b, to, count);
}

}  // namespace muster
