// Ends this process if a wait for its GPU lasts too long. A hanging driver does not return from
// calls that wait or free, so no error can be thrown there.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "worker/backend/cuda/plugin.h"

namespace muster::cuda {

// Owner and thread: the backend's. Must outlive everything that frees the driver's resources.
class Watchdog {
 public:
  // `gpu`: its name, for messages.
  Watchdog(const CudaOptions& options, std::string gpu);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;

  // Until the next call the process has `drain_s` to do this: "finish its kernels". Null: no limit.
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

}  // namespace muster::cuda
