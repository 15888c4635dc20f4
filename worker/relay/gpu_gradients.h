// The gradients that the workers of this host keep in the memory of their GPUs.
//
// Owned by the relay and used on its thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "proto/wire.pb.h"
#include "worker/backend/gpu_adder.h"
#include "worker/relay/relayed_gradient.h"

namespace muster {

class GpuGradients {
 public:
  // `chunk_end`: as in Welcome.
  GpuGradients(std::unique_ptr<GpuAdder> adder, std::vector<uint64_t> chunk_end)
      : adder_(std::move(adder)), chunk_end_(std::move(chunk_end)) {}

  // The worker `via` says where one of its gradient buffers is.
  void Open(uint32_t via, const wire::GpuBuffer& buffer);
  // The worker is gone.
  void Close(uint32_t via);

  // Returns the place of a gradient's values in a GPU. Null: they are on the host, or there are
  // none, or its worker has not said where they are.
  const float* Find(const RelayedGradient& gradient) const;
  // If the gradient is in a GPU, copies it to the host.
  void Bring(RelayedGradient& gradient) const;
  GpuAdder& adder() const { return *adder_; }

 private:
  const std::unique_ptr<GpuAdder> adder_;
  const std::vector<uint64_t> chunk_end_;
  std::map<std::pair<uint32_t, uint32_t>, const float*> buffers_;  // by worker and buffer
};

}  // namespace muster
