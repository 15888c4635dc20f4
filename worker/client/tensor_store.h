// The memory of a worker's tensors: three weight buffers, for weights of even versions, of odd
// ones, and for their moving average, and the gradient buffers. Each is one arena of floats,
// 64-byte aligned.
//
// Threads: none of its own. The client's rules say who touches which chunk when.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "common/link/link.h"
#include "common/link/wire_type.h"
#include "common/plan/gradient_layout.h"

namespace muster {

class TensorStore {
 public:
  static constexpr int kAverageBuffer = 2;

  virtual ~TensorStore() = default;
  // Buffers beyond GradientLayout::used are allocated when they are first requested.
  virtual std::span<float> GradientBuffer(size_t arena) = 0;
  // The memory of one of those goes back to the system until it is asked for again. What may still
  // be read of it, by a link that has it to send, is zeros. Nothing happens to one that every step
  // uses.
  virtual void GiveBack(size_t arena) = 0;
  // The average has no floats as long as no chunk of it came.
  virtual std::span<const float> WeightBuffer(int buffer) const = 0;
  // A chunk of weights came, with what the link brought of it: from now on WeightBuffer(weight
  // buffer) shows it. False: that is not the whole chunk.
  virtual bool Store(int buffer, const GradientLayout::Span& chunk, const Payload& payload) = 0;
};

// In this process's own memory: what comes is copied in. Weights come as `type`.
std::unique_ptr<TensorStore> MakeOwnTensors(const GradientLayout& layout, WireType type);

// What the server shares: what comes is there already. Throws Error(kPeerFailed) if that is too
// small for the layout, or if the server wants to round what lies there.
std::unique_ptr<TensorStore> MakeSharedTensors(SharedTensors shared, const GradientLayout& layout,
                                               WireType type);

}  // namespace muster
