// The GPU of this worker, with its streams, library handles and memory. Ops use it to queue their
// work.
//
// Owned by the backend and used on its thread. Outlives all ops and buffers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "common/base/element_type.h"
#include "worker/backend/backend.h"
#include "worker/backend/cuda/convolution_record.h"
#include "worker/backend/cuda/cudnn_library.h"
#include "worker/backend/cuda/handles.h"
#include "worker/backend/cuda/plugin.h"
#include "worker/backend/cuda/target.h"
#include "worker/backend/cuda/watchdog.h"

namespace muster::cuda {

class Card {
 public:
  // Throws Error if there is no driver or no such GPU, or if a library does not work.
  explicit Card(const CudaOptions& options);
  Card(const Card&) = delete;

  // Makes this the GPU of the calling thread.
  void Enter() const;

  const CudaOptions& options() const { return options_; }
  ElementType activation_type() const {
    if (options_.precision == CudaOptions::Precision::kFp16) return ElementType::kFloat16;
    return options_.precision == CudaOptions::Precision::kBf16 ? ElementType::kBFloat16
                                                               : ElementType::kFloat32;
  }
  // Returns, for example, "NVIDIA H100 (sm_90, 132 SMs), CUDA 13.0, …".
  std::string Arithmetic() const;
  const std::string& name() const { return name_; }
  std::string PciBusId() const;

  cudaStream_t stream(Queue queue) const { return streams_[static_cast<size_t>(queue)].get(); }
  Target target(Queue queue = Queue::kCompute) const { return {stream(queue), most_blocks_}; }
  cublasHandle_t cublas() const { return cublas_.get(); }
  cublasLtHandle_t cublas_lt() const { return cublas_lt_.get(); }
  // Shared by cuBLAS and cuBLASLt. Only for the compute stream.
  void* workspace() const { return workspace_.get(); }
  static constexpr size_t kWorkspaceBytes = size_t{32} << 20;
  cublasComputeType_t compute_type() const;
  ConvolutionRecord& convolutions() { return convolutions_; }
  const ConvolutionRecord& convolutions() const { return convolutions_; }
  // Null if cuDNN was not found or not requested (worker.convolution).
  const Cudnn* cudnn() const { return cudnn_.get(); }
  // Also monitors the release of all these resources at the end.
  Watchdog& watchdog() { return *watchdog_; }
  bool registers_read_only() const { return registers_read_only_; }
  // Whether repeated work is recorded (graph.h).
  bool graphs() const { return graphs_; }
  void EndGraphs(const char* why);

  // Throws Error with the requested and the available size.
  DeviceMemory Allocate(size_t bytes);
  DeviceMemoryUse memory_use() const;
  void Freed(size_t bytes) { allocated_ -= bytes; }

 private:
  void FindCard();
  void MakeLibraries();
  void RequireHalves(int major) const;
  double limit() const { return options_.memory_fraction * static_cast<double>(total_bytes_); }
  [[noreturn]] void ThrowOutOfMemory(size_t bytes) const;

  const CudaOptions options_;
  std::string name_, architecture_;
  int card_ = 0;  // among the GPUs in CUDA_VISIBLE_DEVICES
  int multiprocessors_ = 1, most_blocks_ = 1;
  bool registers_read_only_ = false, has_tf32_ = true, graphs_ = true;
  size_t total_bytes_ = 0, allocated_ = 0, most_allocated_ = 0;
  std::unique_ptr<Watchdog> watchdog_;
  std::array<StreamHandle, 4> streams_;  // indexed by Queue
  DeviceMemory workspace_;
  CublasHandle cublas_;
  CublasLtHandle cublas_lt_;
  std::shared_ptr<const Cudnn> cudnn_;
  ConvolutionRecord convolutions_;
};

}  // namespace muster::cuda
