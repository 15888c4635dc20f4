#include "worker/backend/cuda/await.h"

#include <chrono>
#include <thread>

#include "worker/backend/cuda/check.h"

namespace muster::cuda {

bool HasHappened(cudaEvent_t event) {
  const cudaError_t result = cudaEventQuery(event);
  if (result == cudaErrorNotReady) return false;
  Check(result, "finish its work");
  return true;
}

// Polls because the driver's own waits have no deadline. Short waits do not sleep.
bool AwaitEvent(cudaEvent_t event, double seconds) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::microseconds kSpin{50}, kShort{20}, kLong{50};
  const Clock::time_point begin = Clock::now();
  for (;;) {
    if (HasHappened(event)) return true;
    const Clock::duration waited = Clock::now() - begin;
    if (std::chrono::duration<double>(waited).count() >= seconds) return HasHappened(event);
    if (waited < kSpin) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(waited < std::chrono::milliseconds(2) ? kShort : kLong);
    }
  }
}

}  // namespace muster::cuda
