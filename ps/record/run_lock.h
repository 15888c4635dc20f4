// Ensures that only one server writes a run's checkpoints and metrics.
#pragma once

#include <memory>

#include "common/base/file_lock.h"
#include "proto/config.pb.h"

namespace muster {

// A lock that is held while this object exists.
class RunLock {
 public:
  // Locks the run directory and waits for a server that is still exiting. Locks nothing without
  // run.dir. Throws Error(kUsage) that names the holder.
  static RunLock OfServer(const config::Config& config);

 private:
  std::unique_ptr<FileLock> lock_;
};

}  // namespace muster
