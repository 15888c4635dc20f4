// One server at a time writes a run's checkpoints and metrics.
#pragma once

#include <memory>

#include "common/base/file.h"
#include "proto/config.pb.h"

namespace muster {

// Held for as long as it lives. A server that was killed a moment ago is waited for.
class RunLock {
 public:
  // Throws Error(kUsage) that names who has it. Without run.dir there is nothing to lock.
  static RunLock OfServer(const config::Config& config);

 private:
  std::unique_ptr<FileLock> lock_;
};

}  // namespace muster
