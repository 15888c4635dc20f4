// How the bytes of an image become the network's input.
#pragma once

#include <cstdint>

namespace muster {

// x ← (x - centre) scale, in float, with a centre and a scale for each channel. No compiler can
// fuse this, so every device computes the same bits.
struct PixelScale {
  static constexpr int64_t kMostChannels = 4;
  float centre[kMostChannels] = {}, scale[kMostChannels] = {};
  int64_t channels = 0;
};

}  // namespace muster
