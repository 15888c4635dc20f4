// Ensures that only one server writes a run's checkpoints and metrics.
#pragma once

#include <memory>

#include "common/base/file.h"
#include "proto/config.pb.h"

namespace muster {

// Held during its lifetime. Waits for a server that is still exiting.
class RunLock {
 public:
  // Throws Error(kUsage) that names the holder. Without run.dir there is nothing to lock.
  static RunLock OfServer(const config::Config& config);

 private:
  std::unique_ptr<FileLock> lock_;
};

}  // namespace muster
