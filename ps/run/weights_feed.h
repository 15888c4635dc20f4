// Sends the weights: chunk by chunk as they are written, and whole to a worker that becomes active.
//
// Owner: the run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "ps/members/membership.h"
#include "ps/update/engine.h"

namespace muster {

class WeightsFeed {
 public:
  // Both outlive this.
  WeightsFeed(Membership& members, const Engine& engine)
      : members_(members), engine_(engine), published_(engine.chunks().size()) {}

  // W(step) is whole, and nothing of W(step + 1) exists.
  void BeginStep(int64_t step);
  // A chunk of W(version), or of its average, has been written: sends it to all active workers.
  void Publish(int64_t version, size_t chunk);
  void PublishAverage(int64_t version, size_t chunk);
  // Makes a worker active, with W(step) and the chunks of W(step + 1) that exist: it gets the other
  // chunks with all others. `average_of`: the version whose average is being evaluated.
  void Activate(uint32_t rank, std::optional<int64_t> average_of);

  // Whether the chunk of W(step + 1) exists.
  const std::vector<bool>& published() const { return published_; }

 private:
  static wire::ServerMessage MessageOf(int64_t version, size_t chunk, bool average);

  Membership& members_;
  const Engine& engine_;
  int64_t step_ = 0;
  std::vector<bool> published_;
};

}  // namespace muster
