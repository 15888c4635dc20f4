// The whole software GPU: its memory, its streams, and the driver's knowledge of host memory.
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
#include "tests/cuda/software_gpu/stream.h"

// The structs behind the runtime's handles.
struct CUevent_st {
  std::shared_ptr<muster::software_gpu::Mark> mark;  // null if never recorded
  bool timing = true;
};
struct CUstream_st {
  std::unique_ptr<muster::software_gpu::Stream> stream;
};

namespace muster::software_gpu {

enum class CallKind {
  kOfNoCard,  // queries, or selects a GPU: allowed whichever GPU the thread uses
  kAnywhere,
  kNotInAStep,  // waits for a stream, or frees: not during a capture either
  kMakes,       // creates an object: not in a step or a capture, nor on a lost device
};

class Device {
 public:
  static Device& Get();

  DeviceMemory& memory() { return memory_; }
  HostMemory& host() { return host_; }
  const Options& options() const { return options_; }
  void Reset(const Options& options);

  // The GPU of the calling thread: 0 until it selects another one. All GPUs are one device, and a
  // program uses a single GPU: its objects exist there and on no other.
  static int& CardOfThread();
  // Starts each call of the runtime and the libraries. Returns false if the call must do nothing
  // and return *error, in the library's own error codes.
  bool Begin(const char* call, CallKind kind, int* error);
  void FailCall(const std::string& call, int nth, int status);
  int Calls(const std::string& call);
  std::map<std::string, int> AllCalls();
  void set_steps(int change) { steps_ += change; }
  void set_captures(int change) { captures_ += change; }
  void set_holds(int change);
  // Blocks while a Hold exists.
  void AwaitRelease();

  // The error that broke the device. All later calls return it.
  cudaError_t failure() const { return failure_.load(); }
  void Fail(cudaError_t error);
  void ForgetFailure() { failure_ = cudaSuccess; }
  // Whether FailCall("kernel") applies to this kernel.
  bool KernelFails();

  // Returns null if there are kMaxStreams already.
  cudaStream_t MakeStream();
  void DestroyStream(cudaStream_t stream);
  // The default stream and unknown streams are violations and return null.
  Stream* Find(cudaStream_t stream, const char* call);
  cudaEvent_t MakeEvent(bool timing);
  bool DestroyEvent(cudaEvent_t event);
  bool IsEvent(cudaEvent_t event);
  std::vector<Stream*> streams();
  // The current stream in this slot, or null.
  Stream* InSlot(int slot);

  // The work that the host knows to be done.
  Clock known();
  void Learn(const Clock& clock);

  // Registers handles of libraries and other objects, to find leaks.
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
  std::atomic<cudaError_t> failure_ = cudaSuccess;
  std::atomic<int> steps_ = 0;
  std::atomic<int> captures_ = 0;
  std::atomic<int> card_ = kNoCard;  // the GPU of all objects of the program

  std::mutex mutex_;
  std::map<std::string, int> calls_;
  std::vector<Fault> faults_;  // nth counts from the first call
  int holds_ = 0;
  std::condition_variable released_;
  std::array<std::unique_ptr<CUstream_st>, kMaxStreams> streams_;
  std::array<uint64_t, kMaxStreams> segments_ = {};  // of destroyed streams
  std::map<cudaEvent_t, std::unique_ptr<CUevent_st>> events_;
  std::map<const void*, std::string> tracked_;
  Clock known_ = {};
};

// Wraps a runtime call: injects faults, returns failures, and updates cudaGetLastError.
cudaError_t RuntimeCall(const char* call, CallKind kind, const std::function<cudaError_t()>& body);

}  // namespace muster::software_gpu
