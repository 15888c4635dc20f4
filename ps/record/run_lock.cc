#include "ps/record/run_lock.h"

#include "common/base/error.h"

namespace muster {
namespace {

// Long enough for a job to stop after its launcher was killed.
constexpr double kWaitSeconds = 5;

}  // namespace

RunLock RunLock::OfServer(const config::Config& config) {
  RunLock lock;
  if (config.run().dir().empty()) return lock;
  const std::string path = config.run().dir() + "/.server.lock";
  lock.lock_ = std::make_unique<FileLock>(path, LockTerms{.wait_s = kWaitSeconds});
  if (lock.lock_->held()) return lock;
  throw Error(ExitCode::kUsage, "the run directory {} is in use by the server with {} ({})",
              config.run().dir(), lock.lock_->holder(), path);
}

}  // namespace muster
