// Ends this process if a wait for its GPU lasts too long. If the driver hangs, calls that wait or
// free resources do not return, so they cannot throw an error.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "worker/backend/cuda/plugin.h"

namespace muster::cuda {

// Owned by the backend and used on its thread. Must outlive everything that frees the driver's
// resources.
class Watchdog {
 public:
  // `gpu` is the GPU's name, for messages.
  Watchdog(const CudaOptions& options, std::string gpu);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;

  // Ends the process unless the next call follows within `drain_s`. `what` says what the GPU must
  // do by then, such as "finish its kernels". Null means that there is no limit.
  void Expect(const char* what);

 private:
  void Work(const std::stop_token& stop);
  [[noreturn]] void EndProcess(const char* what) const;

  const CudaOptions options_;
  const std::string gpu_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  const char* expected_ = nullptr;
  int calls_ = 0;  // calls of Expect
  std::jthread thread_;
};

// Expects the end of a scope, even after an exception: freeing memory waits for the GPU.
class ExpectInScope {
 public:
  ExpectInScope(Watchdog& watchdog, const char* what) : watchdog_(watchdog) {
    watchdog_.Expect(what);
  }
  ~ExpectInScope() { watchdog_.Expect(nullptr); }
  ExpectInScope(const ExpectInScope&) = delete;

 private:
  Watchdog& watchdog_;
};

}  // namespace muster::cuda
