#include "worker/backend/cuda/gpu_adder.h"

#include <cstring>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "worker/backend/cuda/await.h"
#include "worker/backend/cuda/handles.h"
#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/watchdog.h"

namespace muster::cuda {
namespace {

// Page-locked host memory that is used again. The last user may be any thread.
class LockedPool : public std::enable_shared_from_this<LockedPool> {
 public:
  std::shared_ptr<float> Take(size_t floats) {
    LockedMemory memory;
    {
      const std::lock_guard lock(mutex_);
      const auto found = free_.find(floats);
      if (found != free_.end()) {
        memory = std::move(found->second);
        free_.erase(found);
      }
    }
    if (!memory) memory = AllocateLocked(floats * sizeof(float));
    auto* const values = static_cast<float*>(memory.get());
    const auto held = std::make_shared<LockedMemory>(std::move(memory));
    // Kept by size: chunks have few different ones.
    return {values, [pool = shared_from_this(), held, floats](float*) {
              const std::lock_guard lock(pool->mutex_);
              pool->free_.emplace(floats, std::move(*held));
            }};
  }

 private:
  std::mutex mutex_;
  std::multimap<size_t, LockedMemory> free_;  // by size
};

class CudaGpuAdder final : public GpuAdder {
 public:
  explicit CudaGpuAdder(const CudaOptions& options)
      : patience_(options.drain_s), watchdog_(options, "0 of those that the relay sees") {
    RequirePeers();
    cudaDeviceProp properties{};
    Check(cudaGetDeviceProperties(&properties, 0), "be queried");
    stream_ = MakeStream();
    done_ = MakeEventHandle();
    target_ = {.stream = stream_.get(), .most_blocks = MostBlocks(properties)};
  }
  ~CudaGpuAdder() override {
    watchdog_.Expect("release the relay's resources");
    (void)cudaStreamSynchronize(stream_.get());
    for (const float* const buffer : open_) (void)cudaIpcCloseMemHandle(Writable(buffer));
  }

  void Reserve(size_t places, size_t count) override {
    floats_ = count;
    for (size_t place = 0; place < places; ++place) {
      void* memory = nullptr;
      Check(cudaMalloc(&memory, count * sizeof(float)), "allocate memory for sums of gradients");
      places_.emplace_back(memory);
    }
    (void)pool_->Take(count);  // which keeps it
  }

  const float* Open(const std::string& handle) override {
    cudaIpcMemHandle_t exported{};
    if (handle.size() != sizeof exported.reserved) {
      throw Error(ExitCode::kPeerFailed,
                  "a worker's GPU memory has a handle of {} bytes, expected {}", handle.size(),
                  sizeof exported.reserved);
    }
    std::memcpy(exported.reserved, handle.data(), handle.size());
    void* memory = nullptr;
    Check(cudaIpcOpenMemHandle(&memory, exported, cudaIpcMemLazyEnablePeerAccess),
          "read the memory of another GPU (worker.gpu_sums=false avoids it)");
    open_.push_back(static_cast<float*>(memory));
    return open_.back();
  }
  void Close(const float* buffer) override {
    const ExpectInScope expected(watchdog_, "close the memory of a worker");
    (void)cudaStreamSynchronize(stream_.get());
    (void)cudaIpcCloseMemHandle(Writable(buffer));
    std::erase(open_, buffer);
  }

  const float* Add(const float* a, const float* b, size_t count, size_t place) override {
    MUSTER_CHECK(count <= floats_);
    auto* const sum = static_cast<float*>(places_.at(place).get());
    AddSlices(target_, ElementType::kFloat32, sum, a, b, static_cast<int64_t>(count));
    return sum;
  }

  std::shared_ptr<const float> Bring(const float* from, size_t count) override {
    std::shared_ptr<float> to = pool_->Take(count);
    Check(cudaMemcpyAsync(to.get(), from, count * sizeof(float), cudaMemcpyDeviceToHost,
                          stream_.get()),
          "copy to the host");
    Check(cudaEventRecord(done_.get(), stream_.get()), "record an event");
    if (!AwaitEvent(done_.get(), patience_)) {
      throw Error(ExitCode::kDeadline, "a GPU did not add gradients within {:g} s", patience_);
    }
    return to;
  }

 private:
  static void RequirePeers() {
    int count = 0;
    Check(cudaGetDeviceCount(&count), "be found");
    // The relay would take the place of a worker.
    for (int card = 0; card < count; ++card) {
      int mode = 0;
      Check(cudaDeviceGetAttribute(&mode, cudaDevAttrComputeMode, card), "be queried");
      if (mode == cudaComputeModeDefault) continue;
      throw Error(ExitCode::kFailure,
                  "the compute mode of GPU {} of {} admits only one process (nvidia-smi -c DEFAULT "
                  "changes it)",
                  card, count);
    }
    Check(cudaSetDevice(0), "be used");
    for (int other = 1; other < count; ++other) {
      int can = 0;
      Check(cudaDeviceCanAccessPeer(&can, 0, other), "be queried");
      if (can != 0) continue;
      throw Error(ExitCode::kFailure, "GPU 0 of {} cannot read the memory of GPU {}", count, other);
    }
  }

  static float* Writable(const float* buffer) { return const_cast<float*>(buffer); }

  const double patience_;
  Watchdog watchdog_;
  StreamHandle stream_;
  EventHandle done_;
  Target target_;
  std::vector<const float*> open_;
  std::vector<DeviceMemory> places_;
  size_t floats_ = 0;  // of a place
  const std::shared_ptr<LockedPool> pool_ = std::make_shared<LockedPool>();
};

}  // namespace

std::unique_ptr<GpuAdder> MakeGpuAdder(const CudaOptions& options) {
  return std::make_unique<CudaGpuAdder>(options);
}

}  // namespace muster::cuda
