// Catches a gradient that was not written, in part or as a whole: what lies there is of another
// step, and would be added as if it were this one's. Memory for gradients is filled with a NaN that
// nothing else makes, and looked through for it before it is used.
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
  // A quiet NaN, so that sums hand it on. Processors make others (0xffc00000, 0x7fc00000,
  // 0x7fffffff): a gradient that is not finite is not taken for one that is not there.
  static constexpr uint32_t kUnwritten = 0x7fd5a11e;

  explicit GradientGuard(const VariableLayout& layout);

  // Marks what of [begin, end) of the arena belongs to variables. The padding between them, which
  // nobody writes, stays as it is.
  void Fill(std::span<float> arena, size_t begin, size_t end) const;
  // Throws Error(kFailure) that names the variable and the first index of it that is still marked.
  // `of`: whose gradient it is, "slice 3 of step 12".
  void Check(std::span<const float> arena, size_t begin, size_t end, const std::string& of) const;

 private:
  struct Part {
    std::string name;
    size_t begin, end;
  };
  std::vector<Part> parts_;
};

// The gradient buffers of a worker under a guard: each chunk is marked once in each step, when it
// may be written, and looked through before it is pushed.
class GuardedGradients {
 public:
  using BufferOf = std::function<std::span<float>(size_t buffer)>;
  // `guard` and `chunks` outlive this.
  GuardedGradients(const GradientGuard& guard, const std::vector<ChunkRange>& chunks,
                   BufferOf buffer_of)
      : guard_(guard), chunks_(chunks), buffer_of_(std::move(buffer_of)) {}

  // The worker begins with an order. Buffers of slices that were taken over are marked whole, since
  // nobody reads them.
  void Begin(const Order& order);
  // The chunk of W(version) is here: that of the gradients may be written.
  void Mark(int64_t version, size_t chunk);
  // Throws as GradientGuard::Check.
  void Check(size_t buffer, size_t chunk, const std::string& of) const;

 private:
  const GradientGuard& guard_;
  const std::vector<ChunkRange>& chunks_;
  const BufferOf buffer_of_;
  std::vector<size_t> buffers_;                    // of the last step's order
  std::map<size_t, std::vector<int64_t>> marked_;  // buffer → chunk → of which version
};

}  // namespace muster
