// Detects gradient buffers that were not written completely. Such a buffer still holds values from
// another step, which would be added as if they belonged to this one. The guard fills gradient
// memory with a distinctive NaN and searches for it before the memory is used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "common/graph/variable_layout.h"
#include "worker/client/terms.h"

namespace muster {

class GradientGuard {
 public:
  // A quiet NaN, so that sums propagate it. Processors produce other NaNs (0xffc00000, 0x7fc00000,
  // 0x7fffffff), so a non-finite gradient is not mistaken for an unwritten one.
  static constexpr uint32_t kUnwritten = 0x7fd5a11e;

  explicit GradientGuard(const VariableLayout& layout);

  // Marks the variables in [begin, end) of the gradient buffer `arena` as unwritten. The padding
  // between them stays unchanged.
  void Fill(std::span<float> arena, size_t begin, size_t end) const;
  // Throws an Error(kFailure) that names the variable and its first marked index. `of` identifies
  // the gradient: "slice 3 of step 12".
  void Check(std::span<const float> arena, size_t begin, size_t end, const std::string& of) const;

 private:
  struct Part {
    std::string name;
    size_t begin, end;
  };
  std::vector<Part> parts_;
};

// The guarded gradient buffers of a worker: each step marks a chunk when it may be written and
// checks it before the push.
class GuardedGradients {
 public:
  using BufferOf = std::function<std::span<float>(size_t buffer)>;
  // `guard` and `chunks` must outlive this.
  GuardedGradients(const GradientGuard& guard, const std::vector<ChunkRange>& chunks,
                   BufferOf buffer_of)
      : guard_(guard), chunks_(chunks), buffer_of_(std::move(buffer_of)) {}

  // Called when the worker begins an order. Marks the whole buffers of slices that were taken over,
  // because no thread reads them.
  void Begin(const Order& order);
  // Called when the chunk of W(version) has arrived. Marks the chunk in the gradient buffers.
  void Mark(int64_t version, size_t chunk);
  // Throws like GradientGuard::Check.
  void Check(size_t buffer, size_t chunk, const std::string& of) const;

 private:
  const GradientGuard& guard_;
  const std::vector<ChunkRange>& chunks_;
  const BufferOf buffer_of_;
  std::vector<size_t> buffers_;                    // of the last step's order
  std::map<size_t, std::vector<int64_t>> marked_;  // buffer → version for each chunk
};

}  // namespace muster
