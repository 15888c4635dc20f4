// The CUDA runtime's calls for graphs: a graph is the work captured from one stream, in its order.
#include <cuda_runtime_api.h>

#include <utility>
#include <vector>

#include "tests/cuda/software_gpu/device.h"
#include "tests/cuda/software_gpu/violation.h"

using namespace muster::software_gpu;  // NOLINT(google-build-using-namespace): C functions follow

struct CUgraph_st {
  std::vector<Stream::Item> work;
};
struct CUgraphExec_st {
  std::vector<Stream::Item> work;
};

namespace {

template <typename T>
cudaError_t DestroyGraph(T* graph, const char* call) {
  return RuntimeCall(call, CallKind::kAnywhere, [&] {
    if (!Device::Get().Untrack(graph)) {
      return Refuse(cudaErrorInvalidResourceHandle, std::string(call) + ": no such graph");
    }
    delete graph;
    return cudaSuccess;
  });
}

}  // namespace

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return RuntimeCall("cudaStreamBeginCapture", CallKind::kAnywhere, [&] {
    Stream* const on = Device::Get().Find(stream, "cudaStreamBeginCapture");
    if (on == nullptr) return cudaErrorInvalidResourceHandle;
    if (mode != cudaStreamCaptureModeThreadLocal) {
      return Refuse(cudaErrorInvalidValue, "a capture that calls of other threads invalidate");
    }
    if (on->IsCapturing()) return cudaErrorIllegalState;
    on->BeginCapture();
    Device::Get().set_captures(1);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  Stream* const on = Device::Get().Find(stream, "cudaStreamEndCapture");
  if (on == nullptr || !on->IsCapturing()) return cudaErrorIllegalState;
  std::vector<Stream::Item> work = on->EndCapture();  // even if the call fails
  Device::Get().set_captures(-1);
  return RuntimeCall("cudaStreamEndCapture", CallKind::kAnywhere, [&] {
    *graph = new CUgraph_st{std::move(work)};
    Device::Get().Track(*graph, "a graph");
    return cudaSuccess;
  });
}

// Graphs are made in the first steps, so a step may make them.
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* startable, cudaGraph_t graph,
                                          unsigned long long) {
  return RuntimeCall("cudaGraphInstantiateWithFlags", CallKind::kAnywhere, [&] {
    if (!Device::Get().IsTracked(graph)) {
      return Refuse(cudaErrorInvalidResourceHandle, "cudaGraphInstantiate: no such graph");
    }
    *startable = new CUgraphExec_st{graph->work};
    Device::Get().Track(*startable, "a graph that can be started");
    return cudaSuccess;
  });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  return RuntimeCall("cudaGraphLaunch", CallKind::kAnywhere, [&] {
    Stream* const on = Device::Get().Find(stream, "cudaGraphLaunch");
    if (on == nullptr) return cudaErrorInvalidResourceHandle;
    if (!Device::Get().IsTracked(graph)) {
      return Refuse(cudaErrorInvalidResourceHandle, "cudaGraphLaunch: no such graph");
    }
    for (const Stream::Item& item : graph->work) {
      on->Push(Device::Get().known(), item.name, item.kernel, item.work);
    }
    return cudaSuccess;
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return DestroyGraph(graph, "cudaGraphDestroy"); }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  return DestroyGraph(graph, "cudaGraphExecDestroy");
}
}
