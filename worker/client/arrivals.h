// Which weights have come: of each chunk the newest version, and the version of the newest average.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "proto/wire.pb.h"

namespace muster {

class Arrivals {
 public:
  Arrivals() = default;  // nothing is to come
  // Before the first ones, W(first), came. A run that goes on may begin with an evaluation of their
  // average.
  Arrivals(size_t chunks, int64_t first)
      : first_(first), weights_(chunks, first - 1), average_(chunks, first - 1) {}

  // Weights of this version are not here, and will never come.
  bool BeginAfter(int64_t version) const { return version < first_; }

  // The chunk of these weights, or of their average, or of later ones.
  bool Has(int64_t version, size_t chunk, bool average) const {
    return !BeginAfter(version) && chunk < weights_.size() &&
           (average ? average_ : weights_)[chunk] >= version;
  }

  // Weights come version by version; an average only where an evaluation wants it, and after its
  // weights. Chunks are in any order, and any number.
  bool IsNext(const wire::WeightsChunk& weights) const {
    const size_t chunk = weights.chunk();
    if (chunk >= weights_.size()) return false;
    if (!weights.average()) return weights.version() == weights_[chunk] + 1;
    return weights.version() == weights_[chunk] && weights.version() > average_[chunk];
  }
  void Mark(const wire::WeightsChunk& next) {
    (next.average() ? average_ : weights_)[next.chunk()] = next.version();
  }

 private:
  int64_t first_ = 0;
  std::vector<int64_t> weights_, average_;
};

}  // namespace muster
