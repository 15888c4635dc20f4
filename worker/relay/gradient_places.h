// The memory in which a relay on the server's host gives gradients to the server. Each gradient of
// a step has a place of its own, because the server may read one at any time until the weights that
// follow have arrived.
//
// Owned by the relay and used on its thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/base/shared_memory.h"
#include "common/plan/gradient_layout.h"
#include "worker/relay/relayed_gradient.h"

namespace muster {

class GradientPlaces {
 public:
  // `memory` came from the server. `layout`: GradientLayout::OfRelay.
  GradientPlaces(SharedMemory memory, GradientLayout layout, size_t chunks)
      : memory_(std::move(memory)), layout_(std::move(layout)), steps_(chunks) {}

  // Copies the values to a place, and names it in the message. Returns false if the gradient is not
  // of the whole chunk.
  bool Put(RelayedGradient& gradient) {
    wire::GradientPart& part = *gradient.message.mutable_gradient_part();
    const auto chunk = layout_.Chunk(part.chunk());
    if (!chunk || gradient.payload.bytes != chunk->count * sizeof(float)) return false;
    part.set_place(Take(part.chunk(), part.step()));
    const auto place = layout_.Chunk(part.chunk(), part.place());
    std::memcpy(memory_.writable_floats().data() + place->begin, gradient.payload.data,
                gradient.payload.bytes);
    return true;
  }
  // This chunk of W(version) has arrived: the server has read all gradients of earlier steps.
  void Free(uint32_t chunk, int64_t version) {
    for (int64_t& step : steps_[chunk]) {
      if (step < version) step = kFree;
    }
  }

 private:
  static constexpr int64_t kFree = -1;

  uint32_t Take(uint32_t chunk, int64_t step) {
    std::vector<int64_t>& steps = steps_.at(chunk);
    auto place = std::ranges::find(steps, kFree);
    if (place == steps.end()) {
      if (steps.size() == GradientLayout::kRelayPlaces) {
        throw Error(ExitCode::kFailure, "more than {} gradients in a step (worker.gpu_sums)",
                    GradientLayout::kRelayPlaces);
      }
      place = steps.insert(place, kFree);
    }
    *place = step;
    return static_cast<uint32_t>(place - steps.begin());
  }

  SharedMemory memory_;
  const GradientLayout layout_;
  std::vector<std::vector<int64_t>> steps_;  // by chunk and place, the step whose gradient is there
};

}  // namespace muster
