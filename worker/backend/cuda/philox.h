// The random numbers of common/base/random.h on the GPU. Included only by .cu files.
#pragma once

#include <cstdint>

namespace muster::cuda {

struct Bits {
  uint32_t at[4];
};

// Ten rounds of Philox4x32.
__device__ inline Bits PhiloxBits(Bits counter, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53} * counter.at[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57} * counter.at[2];
    counter = {{static_cast<uint32_t>(product1 >> 32) ^ counter.at[1] ^ key0,
                static_cast<uint32_t>(product1),
                static_cast<uint32_t>(product0 >> 32) ^ counter.at[3] ^ key1,
                static_cast<uint32_t>(product0)}};
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return counter;
}

// Maps the upper 24 bits to [0, 1).
__device__ inline float ToUniform(uint32_t bits) {
  return static_cast<float>(bits >> 8) * 0x1p-24f;
}

}  // namespace muster::cuda
