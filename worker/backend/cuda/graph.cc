#include "worker/backend/cuda/graph.h"

#include <algorithm>
#include <utility>

#include "common/base/error.h"

namespace muster::cuda {

StartableGraph RecordGraph(cudaStream_t stream, const std::function<void()>& work) {
  constexpr const char* kWhat = "record kernels";
  // Other threads of this process may call CUDA meanwhile.
  Check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), kWhat);
  cudaGraph_t recorded{};
  try {
    work();
  } catch (...) {
    (void)cudaStreamEndCapture(stream, &recorded);
    (void)cudaGetLastError();
    const GraphHandle unfinished(recorded);
    throw;
  }
  Check(cudaStreamEndCapture(stream, &recorded), kWhat);
  const GraphHandle graph(recorded);
  cudaGraphExec_t startable{};
  Check(cudaGraphInstantiateWithFlags(&startable, recorded, 0), kWhat);
  return StartableGraph(startable);
}

void GraphedWork::Run(std::span<const uint64_t> key, const std::function<void()>& work) {
  if (!card_.graphs()) return work();
  ++runs_;
  Variant* const variant = Find(key);
  if (variant == nullptr) {
    Remember(key);
    return work();
  }
  variant->used = runs_;
  if (!variant->graph) Record(*variant, work);
  if (!variant->graph) return;
  Check(cudaGraphLaunch(variant->graph.get(), card_.stream(Queue::kCompute)),
        "start recorded kernels");
}

GraphedWork::Variant* GraphedWork::Find(std::span<const uint64_t> key) {
  const auto found = std::ranges::find_if(
      variants_, [&](const Variant& variant) { return std::ranges::equal(variant.key, key); });
  return found == variants_.end() ? nullptr : &*found;
}

void GraphedWork::Remember(std::span<const uint64_t> key) {
  if (variants_.size() == kMostVariants) {
    variants_.erase(std::ranges::min_element(variants_, {}, &Variant::used));
  }
  variants_.push_back({.key = {key.begin(), key.end()}, .graph = {}, .used = runs_});
}

void GraphedWork::Record(Variant& variant, const std::function<void()>& work) {
  try {
    variant.graph = RecordGraph(card_.stream(Queue::kCompute), work);
  } catch (const Error& error) {
    work();  // throws if the GPU itself has failed
    card_.EndGraphs(error.what());
  }
}

}  // namespace muster::cuda
