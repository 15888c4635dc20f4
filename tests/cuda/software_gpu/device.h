// All of the software GPU: its memory, its streams, and what its driver knows of the host.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/cuda/software_gpu/control.h"
#include "tests/cuda/software_gpu/device_memory.h"
#include "tests/cuda/software_gpu/host_memory.h"
#include "tests/cuda/software_gpu/kernel_table.h"
#include "tests/cuda/software_gpu/stream.h"

// What the runtime's handles point to.
struct CUevent_st {
  std::shared_ptr<muster::software_gpu::Mark> mark;  // null: never recorded
  bool timing = true;
};
struct CUstream_st {
  std::unique_ptr<muster::software_gpu::Stream> stream;
};

namespace muster::software_gpu {

// Shared memory of a block: without asking, and for a kernel that asked (cudaFuncSetAttribute).
inline constexpr size_t kSharedPerBlock = 48 << 10;
inline constexpr size_t kSharedOptIn = 99 << 10;

enum class CallKind {
  kOfNoCard,  // asks, or chooses a card: whatever card the thread works with
  kAnywhere,
  kNotInAStep,  // waits for a stream, or frees
  kMakes,       // something that is given back: not in a step either, nor on a lost device
};

class Device {
 public:
  static Device& Get();

  DeviceMemory& memory() { return memory_; }
  HostMemory& host() { return host_; }
  const Options& options() const { return options_; }
  void Reset(const Options& options);

  // What the calling thread works with: card 0, until it chooses another one. There is one device
  // behind all cards, and a program uses one card: what it has made is there and on no other.
  static int& CardOfThread();
  // Begins each call of the runtime, and of the libraries, `error` being whatever they call an
  // error: false if the call is to return *error and do nothing.
  bool Begin(const char* call, CallKind kind, int* error);
  void FailCall(const std::string& call, int nth, int status);
  int Calls(const std::string& call);
  std::map<std::string, int> AllCalls();
  void set_steps(int change) { steps_ += change; }
  void set_holds(int change);
  // Until there is no Hold.
  void AwaitRelease();

  // What broke the device: returned by all calls from then on.
  cudaError_t failure() const { return failure_.load(); }
  void Fail(cudaError_t error);
  void ForgetFailure() { failure_ = cudaSuccess; }
  // What kernels need of a card.
  KernelTable& kernels() { return kernels_; }
  // The most shared memory that a block of the kernel may have, its own and what it is launched
  // with.
  size_t SharedLimit(const void* kernel);
  void SetSharedLimit(const void* kernel, size_t bytes);
  // Whether this kernel is the one that FailCall("kernel") was for.
  bool KernelFails();

  // Null: as many as there can be.
  cudaStream_t MakeStream();
  void DestroyStream(cudaStream_t stream);
  // A violation and null, if it is the default stream or none.
  Stream* Find(cudaStream_t stream, const char* call);
  cudaEvent_t MakeEvent(bool timing);
  bool DestroyEvent(cudaEvent_t event);
  bool IsEvent(cudaEvent_t event);
  std::vector<Stream*> streams();
  // The stream of this slot, now. Null: none.
  Stream* InSlot(int slot);

  // What the host knows to be done.
  Clock known();
  void Learn(const Clock& clock);

  // Handles of libraries and other things that must be given back.
  void Track(const void* object, const std::string& what);
  bool Untrack(const void* object);
  bool IsTracked(const void* object);
  std::vector<std::string> Leaks();

 private:
  static constexpr int kNoCard = -1;

  Device();

  bool IsLost() const;
  void CheckCard(const char* call);

  Options options_;
  DeviceMemory memory_;
  HostMemory host_;
  KernelTable kernels_;
  std::atomic<cudaError_t> failure_ = cudaSuccess;
  std::atomic<int> steps_ = 0;
  std::atomic<int> card_ = kNoCard;  // of all that the program has made

  std::mutex mutex_;
  std::map<std::string, int> calls_;
  std::vector<Fault> faults_;  // their nth counts from the first call
  int holds_ = 0;
  std::condition_variable released_;
  std::array<std::unique_ptr<CUstream_st>, kMaxStreams> streams_;
  std::array<uint64_t, kMaxStreams> segments_ = {};  // of streams that were destroyed
  std::map<cudaEvent_t, std::unique_ptr<CUevent_st>> events_;
  std::map<const void*, std::string> tracked_;
  std::map<const void*, size_t> shared_limits_;
  Clock known_ = {};
};

// One call of the runtime: faults, failures, and cudaGetLastError.
cudaError_t RuntimeCall(const char* call, CallKind kind, const std::function<cudaError_t()>& body);
// A violation is recorded, and the call returns this.
cudaError_t Refuse(cudaError_t error, const std::string& what);

}  // namespace muster::software_gpu
