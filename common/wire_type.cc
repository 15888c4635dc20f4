#include "common/wire_type.h"

#include <algorithm>
#include <bit>

#include "common/error.h"

#if defined(__F16C__) || defined(__AVX2__)
#include <immintrin.h>
#endif

namespace muster {
namespace {

constexpr size_t kBlock = 1024;  // what is converted there and back stays in the L1 cache

// Each conversion is a pair of functions on one value, and loops that do the same to many.
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
    size_t i = 0;
#ifdef __AVX2__
    for (; i + 16 <= from.size(); i += 16) {
      const float* const at = from.data() + i;
      if (AnyNan(at)) {
        for (size_t j = i; j < i + 16; ++j) to[j] = Narrow(from[j]);
        continue;
      }
      const __m256i low = _mm256_srli_epi32(RoundEight(at), 16);
      const __m256i high = _mm256_srli_epi32(RoundEight(at + 8), 16);
      // Packing works on halves of the registers: 0-3 8-11 | 4-7 12-15.
      const __m256i halves = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xd8);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i), halves);
    }
#endif
    for (; i < from.size(); ++i) to[i] = Narrow(from[i]);
  }
  static void RoundAll(std::span<float> values) {
    size_t i = 0;
#ifdef __AVX2__
    for (; i + 16 <= values.size(); i += 16) {
      float* const at = values.data() + i;
      if (AnyNan(at)) {
        for (size_t j = i; j < i + 16; ++j) values[j] = Widen(Narrow(values[j]));
        continue;
      }
      const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xffff0000));
      for (float* const eight : {at, at + 8}) {
        _mm256_storeu_ps(eight, _mm256_castsi256_ps(_mm256_and_si256(RoundEight(eight), upper)));
      }
    }
#endif
    for (; i < values.size(); ++i) values[i] = Widen(Narrow(values[i]));
  }
  static void WidenAll(std::span<const uint16_t> from, float* to) {
    for (size_t i = 0; i < from.size(); ++i) to[i] = Widen(from[i]);
  }

#ifdef __AVX2__
  static __m256 WidenEight(const uint16_t* from) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
  }
  // Of sixteen.
  static bool AnyNan(const float* from) {
    return _mm256_movemask_ps(
               _mm256_cmp_ps(_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8), _CMP_UNORD_Q)) != 0;
  }
  // Narrow() of what is not NaN, in the upper halves of 32 bits.
  static __m256i RoundEight(const float* from) {
    const __m256i bits = _mm256_castps_si256(_mm256_loadu_ps(from));
    const __m256i last = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    return _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), last);
  }
#endif
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
  static void RoundAll(std::span<float> values) {
    uint16_t halves[kBlock];
    for (size_t at = 0; at < values.size(); at += kBlock) {
      const std::span<float> block = values.subspan(at, std::min(kBlock, values.size() - at));
      NarrowAll(block, halves);
      WidenAll({halves, block.size()}, block.data());
    }
  }
  static void WidenAll(std::span<const uint16_t> from, float* to) {
    size_t i = 0;
#ifdef __F16C__
    for (; i + 8 <= from.size(); i += 8) _mm256_storeu_ps(to + i, WidenEight(from.data() + i));
#endif
    for (; i < from.size(); ++i) to[i] = Widen(from[i]);
  }

#ifdef __F16C__
  static __m256 WidenEight(const uint16_t* from) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
#endif
};

// Calls body(Bf16()) or body(Fp16()).
template <typename Body>
auto WithType(WireType type, const Body& body) {
  MUSTER_CHECK(type != wire::FP32);
  return type == wire::BF16 ? body(Bf16()) : body(Fp16());
}

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
    uint16_t largest = 0;
    for (size_t at = 0; at < from.size(); at += kBlock) {
      const size_t count = std::min(kBlock, from.size() - at);
      Format::NarrowAll(from.subspan(at, count), to + at);
      for (size_t i = at; i < at + count; ++i) {
        largest = std::max<uint16_t>(largest, to[i] & Format::kExponent);
      }
    }
    return uint32_t{largest == Format::kExponent};
  });
}

void Widen(WireType type, std::span<const uint16_t> from, float* to) {
  WithType(type, [&](auto format) { decltype(format)::WidenAll(from, to); });
}

void WidenPastCache(WireType type, std::span<const uint16_t> from, float* to) {
#if defined(__F16C__) && defined(__AVX2__)
  WithType(type, [&](auto format) {
    using Format = decltype(format);
    size_t i = 0;
    for (; i + 8 <= from.size(); i += 8) _mm256_stream_ps(to + i, Format::WidenEight(&from[i]));
    for (; i < from.size(); ++i) to[i] = Format::Widen(from[i]);
    _mm_sfence();
  });
#else
  Widen(type, from, to);
#endif
}

void RoundToWire(WireType type, std::span<float> values) {
  if (type == wire::FP32) return;
  WithType(type, [&](auto format) { decltype(format)::RoundAll(values); });
}

void AddOnWire(WireType type, const float* a, const float* b, float* to, size_t count) {
  for (size_t at = 0; at < count; at += kBlock) {
    const size_t end = std::min(count, at + kBlock);
    for (size_t i = at; i < end; ++i) to[i] = a[i] + b[i];
    RoundToWire(type, {to + at, end - at});
  }
}

}  // namespace muster
