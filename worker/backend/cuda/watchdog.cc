#include "worker/backend/cuda/watchdog.h"

#include <fmt/core.h>

#include <chrono>
#include <cstdlib>
#include <utility>

#include "common/base/error.h"

namespace muster::cuda {

Watchdog::Watchdog(const CudaOptions& options, std::string gpu)
    : options_(options),
      gpu_(std::move(gpu)),
      thread_([this](const std::stop_token& stop) { Work(stop); }) {}

Watchdog::~Watchdog() = default;

void Watchdog::Expect(const char* what) {
  {
    const std::lock_guard lock(mutex_);
    expected_ = what;
    ++calls_;
  }
  changed_.notify_one();
}

void Watchdog::Work(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    if (expected_ == nullptr) {
      changed_.wait(lock, stop, [this] { return expected_ != nullptr; });
      continue;
    }
    const int call = calls_;
    const auto limit = std::chrono::duration<double>(options_.drain_s);
    if (changed_.wait_for(lock, stop, limit, [&] { return calls_ != call; })) continue;
    if (!stop.stop_requested()) EndProcess(expected_);
  }
}

void Watchdog::EndProcess(const char* what) const {
  options_.Log(
      LogLevel::kError,
      fmt::format("GPU {} did not {} within {} s (deadlines.first_step_s, step_s); its driver may "
                  "be hanging. Exiting now; check the system log (dmesg) for its errors",
                  gpu_, what, options_.drain_s));
  std::_Exit(static_cast<int>(ExitCode::kDeadline));
}

}  // namespace muster::cuda
