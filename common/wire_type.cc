#include "common/wire_type.h"

#include <algorithm>
#include <bit>

#include "common/error.h"

#ifdef __F16C__
#include <immintrin.h>
#endif

namespace muster {
namespace {

// Each conversion is a pair of functions on one value; the loops over them are vectorised by the
// compiler (BF16), or written with the processor's conversions (FP16).
struct Bf16 {
  static constexpr uint16_t kExponent = 0x7f80;

  static uint16_t Narrow(float value) {
    const auto bits = std::bit_cast<uint32_t>(value);
    // To even: half a unit, less one if the last bit that stays is zero.
    const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    const uint32_t nan = (bits >> 16) | 0x40;  // rounding could make an infinity of it
    const bool is_nan = (bits & 0x7fffffff) > 0x7f800000;
    return static_cast<uint16_t>(is_nan ? nan : rounded);
  }
  static float Widen(uint16_t half) {
    return std::bit_cast<float>(static_cast<uint32_t>(half) << 16);
  }

  static void NarrowAll(std::span<const float> from, uint16_t* to) {
    for (size_t i = 0; i < from.size(); ++i) to[i] = Narrow(from[i]);
  }
  static void WidenAll(std::span<const uint16_t> from, float* to) {
    for (size_t i = 0; i < from.size(); ++i) to[i] = Widen(from[i]);
  }
};

struct Fp16 {
  static constexpr uint16_t kExponent = 0x7c00;

  static uint16_t Narrow(float value) {
    return std::bit_cast<uint16_t>(static_cast<_Float16>(value));
  }
  static float Widen(uint16_t half) { return static_cast<float>(std::bit_cast<_Float16>(half)); }

  static void NarrowAll(std::span<const float> from, uint16_t* to) {
    size_t i = 0;
#ifdef __F16C__
    for (; i + 8 <= from.size(); i += 8) {
      const __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(from.data() + i),
                                             _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i), halves);
    }
#endif
    for (; i < from.size(); ++i) to[i] = Narrow(from[i]);
  }
  static void WidenAll(std::span<const uint16_t> from, float* to) {
    size_t i = 0;
#ifdef __F16C__
    for (; i + 8 <= from.size(); i += 8) {
      const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from.data() + i));
      _mm256_storeu_ps(to + i, _mm256_cvtph_ps(halves));
    }
#endif
    for (; i < from.size(); ++i) to[i] = Widen(from[i]);
  }
};

// Calls body(Bf16()) or body(Fp16()).
template <typename Body>
auto WithType(WireType type, const Body& body) {
  MUSTER_CHECK(type != wire::FP32);
  return type == wire::BF16 ? body(Bf16()) : body(Fp16());
}

constexpr size_t kBlock = 1024;  // what is converted there and back stays in the L1 cache

}  // namespace

WireType WireTypeOf(const config::Cluster& cluster) {
  switch (cluster.wire_dtype()) {
    case config::Cluster::FP32:
      return wire::FP32;
    case config::Cluster::BF16:
      return wire::BF16;
    case config::Cluster::FP16:
      return wire::FP16;
  }
  return wire::FP32;
}

uint32_t Narrow(WireType type, std::span<const float> from, uint16_t* to) {
  return WithType(type, [&](auto format) {
    using Format = decltype(format);
    uint32_t infinite = 0;
    for (size_t at = 0; at < from.size(); at += kBlock) {
      const size_t count = std::min(kBlock, from.size() - at);
      Format::NarrowAll(from.subspan(at, count), to + at);
      for (size_t i = at; i < at + count; ++i) {
        infinite |= (to[i] & Format::kExponent) == Format::kExponent;
      }
    }
    return infinite;
  });
}

void Widen(WireType type, std::span<const uint16_t> from, float* to) {
  WithType(type, [&](auto format) { decltype(format)::WidenAll(from, to); });
}

void RoundToWire(WireType type, std::span<float> values) {
  if (type == wire::FP32) return;
  WithType(type, [&](auto format) {
    uint16_t halves[kBlock];
    for (size_t at = 0; at < values.size(); at += kBlock) {
      const std::span<float> block = values.subspan(at, std::min(kBlock, values.size() - at));
      decltype(format)::NarrowAll(block, halves);
      decltype(format)::WidenAll({halves, block.size()}, block.data());
    }
  });
}

void AddOnWire(WireType type, const float* a, const float* b, float* to, size_t count) {
  for (size_t at = 0; at < count; at += kBlock) {
    const size_t end = std::min(count, at + kBlock);
    for (size_t i = at; i < end; ++i) to[i] = a[i] + b[i];
    RoundToWire(type, {to + at, end - at});
  }
}

}  // namespace muster
