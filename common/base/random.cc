#include "common/base/random.h"

namespace muster {

std::array<uint32_t, 4> Philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  constexpr uint64_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = kMultiplier0 * counter[0];
    const uint64_t product1 = kMultiplier1 * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

RandomStream::RandomStream(uint64_t seed, RandomPurpose purpose, uint32_t place, uint32_t epoch,
                           uint64_t sample) {
  // Seed, purpose and place form the key of the stream. Hashing them with Philox itself leaves the
  // whole counter for epoch, sample and block.
  const auto mixed = Philox({static_cast<uint32_t>(purpose), place, 0x6d757374, 0x65720000},
                            {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  key_ = {mixed[0], mixed[1]};
  counter_ = {epoch, static_cast<uint32_t>(sample), static_cast<uint32_t>(sample >> 32), 0};
}

std::array<uint32_t, 4> RandomStream::Block(uint32_t index) const {
  auto counter = counter_;
  counter[3] = index;
  return Philox(counter, key_);
}

}  // namespace muster
