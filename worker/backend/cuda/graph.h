// CUDA graphs: the kernels of a part of a pass, started by one call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "worker/backend/backend.h"
#include "worker/backend/cuda/card.h"
#include "worker/backend/cuda/handles.h"

namespace muster::cuda {

using GraphHandle = Handle<cudaGraph_t, cudaGraphDestroy>;
using StartableGraph = Handle<cudaGraphExec_t, cudaGraphExecDestroy>;

// Records what `work` queues on the stream.
StartableGraph RecordGraph(cudaStream_t stream, const std::function<void()>& work);

// Records the work when it is queued for the second time with the same key. The first time it is
// queued directly, because libraries load their kernels then.
class GraphedWork final : public RepeatedWork {
 public:
  explicit GraphedWork(Card& card) : card_(card) {}
  void Run(std::span<const uint64_t> key, const std::function<void()>& work) override;

 private:
  struct Variant {
    std::vector<uint64_t> key;
    StartableGraph graph;
    int64_t used = 0;  // the number of the last run with this key
  };
  // A worker alternates between two inputs, two copies of the weights, and the levels of a sum. The
  // other values of a key seldom change.
  static constexpr size_t kMostVariants = 64;

  Variant* Find(std::span<const uint64_t> key);
  void Remember(std::span<const uint64_t> key);
  // Records the work. If the driver cannot, queues it and ends the use of graphs.
  void Record(Variant& variant, const std::function<void()>& work);

  Card& card_;
  int64_t runs_ = 0;
  std::vector<Variant> variants_;
};

}  // namespace muster::cuda
