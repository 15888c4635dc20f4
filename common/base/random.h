// Every random choice is a pure function of what it is for: Philox4x32-10 (Salmon et al.,
// "Parallel random numbers: as easy as 1, 2, 3", SC 2011), keyed by seed and purpose, counted by
// epoch, sample and element. There is no state to save, and no order to keep.
#pragma once

#include <array>
#include <cstdint>

namespace muster {

// Ten rounds of Philox4x32 on `counter` with `key`.
std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// What a random number is for. Streams of different purposes are independent.
enum class RandomPurpose : uint32_t {
  kInitialWeights = 1,
  kShuffle = 2,
  kAugment = 3,
  kDropout = 4,
  kSynthetic = 5,
  kMixup = 6,
};

// The random numbers of one purpose, one place (a layer or variable index, or 0), one epoch and
// one sample. Block(i) is 128 bits, the same whenever and wherever it is asked for.
// Cheap to make and to copy; safe to use from any thread.
class RandomStream {
 public:
  RandomStream(uint64_t seed, RandomPurpose purpose, uint32_t place, uint32_t epoch,
               uint64_t sample);

  std::array<uint32_t, 4> Block(uint32_t index) const;
  // For devices, which draw for themselves: Block(i) is Philox of {epoch, both halves of the
  // sample, i} with this key.
  const std::array<uint32_t, 2>& key() const { return key_; }

 private:
  std::array<uint32_t, 2> key_;
  std::array<uint32_t, 4> counter_;  // [3] is the index of the block
};

// [0, 1): the 24 upper bits.
inline float ToUniform(uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1p-24f; }

}  // namespace muster
