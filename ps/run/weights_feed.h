// Sends the weights: each chunk when it is written, and all chunks to a newly active worker.
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
  // Both must outlive this object.
  WeightsFeed(Membership& members, const Engine& engine)
      : members_(members), engine_(engine), published_(engine.chunks().size()) {}

  // Called when W(step) is complete and nothing of W(step + 1) exists.
  void BeginStep(int64_t step);
  // Called when a chunk of W(version) was written. Sends it to all active workers.
  void Publish(int64_t version, size_t chunk);
  // Called when a chunk of the average of W(version) was written. Sends it to all active workers.
  void PublishAverage(int64_t version, size_t chunk);
  // Activates a worker and sends it W(step) and the existing chunks of W(step + 1). It gets the
  // remaining chunks together with all other workers. `average_of`: the version whose average is
  // being evaluated.
  void Activate(uint32_t rank, std::optional<int64_t> average_of);

  // For each chunk, whether W(step + 1) exists.
  const std::vector<bool>& published() const { return published_; }

 private:
  static wire::ServerMessage MessageOf(int64_t version, size_t chunk, bool average);

  Membership& members_;
  const Engine& engine_;
  int64_t step_ = 0;
  std::vector<bool> published_;
};

}  // namespace muster
