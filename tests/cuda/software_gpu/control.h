// What a test says to the software GPU: how it behaves, which call fails, and what it found.
//
// The software GPU stands behind the C functions of the CUDA runtime, of cuBLAS and of cuDNN, so
// there is one of it in a process, as there is one driver. It begins with the first call; what is
// configured after that, except faults, has no effect until Reset.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/cuda/software_gpu/kernel_resources.h"

namespace muster::software_gpu {

// See FailCall.
struct Fault {
  std::string call;
  int nth;
  int status;
};

struct Options {
  uint64_t seed = 1;
  // One piece of work in four begins a random time up to this later, in microseconds.
  int delay_us = 100;
  size_t memory_bytes = size_t{1} << 30;
  int multiprocessors = 2;
  int compute_major = 9;
  int compute_minor = 0;
  // 0: a machine with a driver and no card. Several are one device behind several numbers.
  int devices = 1;
  // Whether cudaHostRegister takes cudaHostRegisterReadOnly: not on x86.
  bool read_only_registration = false;
  // Once there is a file of this name: what it holds is, as CUDA_VISIBLE_DEVICES has it, the card
  // that is lost, if it is this process's.
  std::string lost_card_file;
  // Whether each product (cuBLAS and cublasLt) gives one wrong number.
  bool wrong_products = false;
  std::vector<Fault> faults;
};

// From the environment variable MUSTER_SOFTWARE_GPU, for processes that a test cannot reach into:
// NAME=VALUE, separated by commas, with the names above, and fail=CALL:NTH:STATUS. Called by the
// first call of the runtime.
Options OptionsOfEnvironment();

// Replaces the options and forgets all faults, failures and counts. Nothing may be allocated.
void Reset(const Options& options);

// The nth call (from 1, counted from now) of this function of CUDA, cuBLAS or cuDNN does nothing
// and returns `status`, a value of its own type of status. "kernel": the nth kernel from now fails
// while it runs, and from then on all calls of the runtime return `status`: a lost device.
void FailCall(const std::string& call, int nth, int status);
// How often this function was called since the last Reset.
int Calls(const std::string& call);
// The number of calls of each function and kernel so far. Tests let each of them fail in turn.
std::map<std::string, int> AllCalls();

// The device works again after a failure: what no card does.
void ForgetFailure();

// What is still there: allocations, registrations, streams, events, handles, descriptors. One line
// for each. Also checked when the process ends, which then aborts.
std::vector<std::string> Leaks();

// What is broken aborts the process with a message, or, as long as there is one of these, is kept
// here: calls return an error, and kernels end where they are.
class ViolationRecorder {
 public:
  ViolationRecorder();
  ~ViolationRecorder();
  ViolationRecorder(const ViolationRecorder&) = delete;
  ViolationRecorder& operator=(const ViolationRecorder&) = delete;
  std::vector<std::string> Take();
};

// What a kernel needs of a card, where it is none of the backend's: their numbers are those of
// libmuster_cuda.so, if nvcc has built it.
void DeclareResources(const void* kernel, const KernelResources& resources);
// Kernels that were launched although their numbers are not known, in words; none without nvcc.
std::vector<std::string> KernelsWithoutResources();

// Work of the test's own, behind what the stream of this number (from 0, in the order in which they
// were made) was given so far. The stream waits for it.
void QueueWork(int stream, std::function<void()> work);

// As long as there is one, no stream begins any work.
class Hold {
 public:
  Hold();
  ~Hold();
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
};

// As long as there is one, allocation and waiting for streams are violations.
class Step {
 public:
  Step();
  ~Step();
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;
};

}  // namespace muster::software_gpu
