// The weights of a convolution in the layout of a oneDNN primitive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "common/base/memory.h"
#include "worker/backend/cpu/onednn.h"

namespace muster::cpu {

// A copy that is updated when the weights' version changes. If the primitive accepts the weights'
// own layout, no copy is made. Allocate must precede the first Update.
class ReorderedWeights {
 public:
  ReorderedWeights(const OneDnn& dnn, const dnnl::memory::desc& outside,
                   const dnnl::memory::desc& inside);

  const dnnl::memory::desc& layout() const { return layout_; }
  size_t bytes() const { return same_ ? 0 : layout_.get_size(); }
  void Allocate();  // only the first call allocates

  // The memory to pass to the primitive.
  const dnnl::memory& inside() const { return inside_; }
  // Does nothing if the copy already has this version.
  void Update(OneDnn& dnn, const float* weights, int64_t version);

 private:
  const dnnl::memory::desc layout_;
  const bool same_;
  dnnl::memory outside_, inside_;
  dnnl::reorder reorder_;
  Arena data_;
  std::optional<int64_t> version_;
};

}  // namespace muster::cpu
