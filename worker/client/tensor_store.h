// The memory of a worker's tensors: three weight buffers (even versions, odd versions, moving
// average) and the gradient buffers. Each holds all parameters as floats, 64-byte aligned.
//
// Not synchronized: the client's rules say which thread uses a chunk when.
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
  // Buffers with index GradientLayout::used or higher are allocated on first use.
  virtual std::span<float> GradientBuffer(size_t arena) = 0;
  // Returns the memory of a gradient buffer to the system until its next use. A link that has not
  // sent the buffer yet may read zeros. Has no effect on buffers that every step uses.
  virtual void GiveBack(size_t arena) = 0;
  // The average is empty until its first chunk arrives.
  virtual std::span<const float> WeightBuffer(int buffer) const = 0;
  // Makes an arrived chunk visible in WeightBuffer(buffer). Returns false if `payload` is not the
  // whole chunk.
  virtual bool Store(int buffer, const GradientLayout::Span& chunk, const Payload& payload) = 0;
};

// Makes tensors in this process's own memory, to which arriving weights of `type` are copied.
std::unique_ptr<TensorStore> MakeOwnTensors(const GradientLayout& layout, WireType type);

// Makes tensors in memory shared by the server or a relay, so that arriving weights need no copy.
// They are floats there even if the wire has 16 bits. Throws Error(kPeerFailed) if the memory is
// too small for the layout.
std::unique_ptr<TensorStore> MakeSharedTensors(SharedTensors shared, const GradientLayout& layout);

}  // namespace muster
