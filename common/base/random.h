// Random numbers as pure functions of what they are used for: Philox4x32-10 (Salmon et al.,
// "Parallel random numbers: as easy as 1, 2, 3", SC 2011). Seed and purpose form the key; epoch,
// sample and element form the counter. There is no state to save and no order to preserve.
#pragma once

#include <array>
#include <cstdint>

namespace muster {

// Ten rounds of Philox4x32 on `counter` with `key`.
std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// The purpose of a random number. Streams for different purposes are independent.
enum class RandomPurpose : uint32_t {
  kInitialWeights = 1,
  kShuffle = 2,
  kAugment = 3,
  kDropout = 4,
  kSynthetic = 5,
  kMixup = 6,
};

// The random numbers for one purpose, one place (a layer or variable index, or 0), one epoch and
// one sample. Block(i) is 128 bits and does not depend on the order of calls. Cheap to create and
// copy; safe to use from any thread.
class RandomStream {
 public:
  RandomStream(uint64_t seed, RandomPurpose purpose, uint32_t place, uint32_t epoch,
               uint64_t sample);

  std::array<uint32_t, 4> Block(uint32_t index) const;
  // The key, for GPUs, which compute Block(i) as Philox of {epoch, both halves of the sample, i}.
  const std::array<uint32_t, 2>& key() const { return key_; }

 private:
  std::array<uint32_t, 2> key_;
  std::array<uint32_t, 4> counter_;  // [3] is the block index
};

// Maps the 24 upper bits to [0, 1).
inline float ToUniform(uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1p-24f; }

}  // namespace muster
