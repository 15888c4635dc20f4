// Controls the software GPU from tests: its behaviour, injected failures, and violations.
//
// The software GPU implements the C functions of the CUDA runtime, cuBLAS and cuDNN, so a process
// has one of it, as it has one driver. It starts with the first call. Later changes of the options,
// except faults, have no effect until Reset.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace muster::software_gpu {

// See FailCall.
struct Fault {
  std::string call;
  int nth;
  int status;
};

struct Options {
  uint64_t seed = 1;
  // A quarter of all work starts with a random delay of up to this many microseconds.
  int delay_us = 100;
  size_t memory_bytes = size_t{1} << 30;
  int multiprocessors = 2;
  int compute_major = 9;
  int compute_minor = 0;
  // The number of GPUs; 0 is a machine with a driver only. All are one device with several numbers.
  int devices = 1;
  // Whether cudaHostRegister supports cudaHostRegisterReadOnly. On x86 it does not.
  bool read_only_registration = false;
  // When this file exists, it holds the GPU that is lost, in the format of CUDA_VISIBLE_DEVICES.
  // Only the process that uses this GPU is affected.
  std::string lost_card_file;
  // Whether each cuBLAS and cublasLt product has one wrong number.
  bool wrong_products = false;
  // The workspace of each cuDNN convolution; 0 depends on the filters, up to 1 MiB.
  size_t cudnn_workspace_bytes = 0;
  std::vector<Fault> faults;
};

// Reads MUSTER_SOFTWARE_GPU, for child processes of tests: NAME=VALUE pairs separated by commas,
// with the names above, and fail=CALL:NTH:STATUS. The runtime's first call uses it.
Options OptionsOfEnvironment();

// Replaces the options and clears faults, failures and counts. Nothing may be allocated.
void Reset(const Options& options);

// Makes the nth call (counting from 1, from now) of this CUDA, cuBLAS or cuDNN function do nothing
// and return `status`, in the function's own status type. With "kernel", the nth kernel fails while
// it runs, and afterwards all runtime calls return `status`, as on a lost device.
void FailCall(const std::string& call, int nth, int status);
// The number of calls of this function since the last Reset.
int Calls(const std::string& call);
// The number of calls of each function and kernel so far. Tests let each of them fail in turn.
std::map<std::string, int> AllCalls();

// Clears a device failure. Real GPUs cannot do this.
void ForgetFailure();

// All remaining allocations, registrations, streams, events, handles and descriptors, one line
// each. A process that ends with leaks aborts.
std::vector<std::string> Leaks();

// A violation aborts the process with a message. While a recorder exists, violations are recorded
// here instead: calls return an error, and kernels stop where they are.
class ViolationRecorder {
 public:
  ViolationRecorder();
  ~ViolationRecorder();
  ViolationRecorder(const ViolationRecorder&) = delete;
  ViolationRecorder& operator=(const ViolationRecorder&) = delete;
  std::vector<std::string> Take();
};

// Queues a test's own work on the stream with this number (from 0, in the order of creation). The
// stream waits for it.
void QueueWork(int stream, std::function<void()> work);

// While a Hold exists, no stream starts any work.
class Hold {
 public:
  Hold();
  ~Hold();
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
};

// While a Step exists, allocating and waiting for streams are violations.
class Step {
 public:
  Step();
  ~Step();
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;
};

}  // namespace muster::software_gpu
