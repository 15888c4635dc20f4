// The weights that a worker receives, as its device sees them.
//
// Owner and thread: the trainer's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <vector>

#include "worker/client/client.h"
#include "worker/nn/device_view.h"

namespace muster {

class DeviceWeights {
 public:
  // `read_only`: they are mapped for reading alone.
  DeviceWeights(Backend& backend, std::vector<ChunkRange> chunks, bool read_only)
      : backend_(backend), chunks_(std::move(chunks)), read_only_(read_only) {}

  // From now on those at this place of the host: one of two buffers, or the average. All work on
  // what was there before is done.
  void Use(std::span<const float> host) {
    auto found = weight_buffers_.find(host.data());
    if (found == weight_buffers_.end()) {
      found = weight_buffers_.try_emplace(host.data(), backend_, host, *this).first;
    }
    used_ = &found->second;
  }
  std::span<const float> floats() const { return used_->view.floats(); }

  // The chunk has arrived at the host, with these contents: it is on the device for what is queued
  // on kCompute from now on.
  void Bring(size_t chunk, int64_t contents) {
    int64_t& there = used_->contents[chunk];
    if (there == contents) return;
    used_->view.CopyIn(chunks_[chunk].begin, chunks_[chunk].end);
    there = contents;
  }

 private:
  static constexpr int64_t kNothing = std::numeric_limits<int64_t>::min();
  struct WeightBuffer {
    WeightBuffer(Backend& backend, std::span<const float> host, const DeviceWeights& weights)
        : view(backend, host, weights.read_only_), contents(weights.chunks_.size(), kNothing) {}
    DeviceView view;
    std::vector<int64_t> contents;  // of each chunk on the device
  };

  Backend& backend_;
  const std::vector<ChunkRange> chunks_;
  const bool read_only_;
  std::map<const float*, WeightBuffer> weight_buffers_;  // by their place at the host
  WeightBuffer* used_ = nullptr;
};

}  // namespace muster
