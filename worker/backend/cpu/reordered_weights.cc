#include "worker/backend/cpu/reordered_weights.h"

#include "common/base/error.h"

namespace muster::cpu {

ReorderedWeights::ReorderedWeights(const OneDnn& dnn, const dnnl::memory::desc& outside,
                                   const dnnl::memory::desc& inside)
    : layout_(inside), same_(outside == inside), outside_(Unbound(dnn, outside)) {
  inside_ = same_ ? outside_ : Unbound(dnn, inside);
  if (!same_) reorder_ = dnnl::reorder(outside_, inside_);
}

void ReorderedWeights::Allocate() {
  if (same_ || !data_.floats().empty()) return;
  data_ = Arena((layout_.get_size() + sizeof(float) - 1) / sizeof(float));
  SetAddress(inside_, data_.floats().data());
}

void ReorderedWeights::Update(OneDnn& dnn, const float* weights, int64_t version) {
  if (!same_ && version_ == version) return;
  SetAddress(outside_, weights);
  if (!same_) {
    MUSTER_CHECK(!data_.floats().empty());
    dnn.Run(reorder_, outside_, inside_);
  }
  version_ = version;
}

}  // namespace muster::cpu
