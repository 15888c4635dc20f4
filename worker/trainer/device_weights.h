// The device's view of the weights that a worker receives.
//
// Owned by the trainer and used on its thread.
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
  // `read_only`: whether the weights are mapped read-only.
  DeviceWeights(Backend& backend, std::vector<ChunkRange> chunks, bool read_only)
      : backend_(backend), chunks_(std::move(chunks)), read_only_(read_only) {}

  // Selects the weights at this host address: one of two buffers, or the average. All work on the
  // previous contents must be done.
  void Use(std::span<const float> host) {
    auto found = weight_buffers_.find(host.data());
    if (found == weight_buffers_.end()) {
      found = weight_buffers_.try_emplace(host.data(), backend_, host, *this).first;
    }
    used_ = &found->second;
  }
  std::span<const float> floats() const { return used_->view.floats(); }

  // Copies the arrived chunk to the device, unless the device already has these `contents`, for
  // work that is queued on kCompute afterwards.
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
    std::vector<int64_t> contents;  // for each chunk on the device
  };

  Backend& backend_;
  const std::vector<ChunkRange> chunks_;
  const bool read_only_;
  std::map<const float*, WeightBuffer> weight_buffers_;  // by host address
  WeightBuffer* used_ = nullptr;
};

}  // namespace muster
