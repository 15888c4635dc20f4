// CUDA_VISIBLE_DEVICES: what the environment leaves of this machine's GPUs.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/gpu/gpu.h"

namespace muster {

struct VisibleGpus {
  bool limited = false;            // the variable is set
  std::string value;               // to this
  std::vector<std::string> uuids;  // of all that are left, in its order; of all, if not limited
  bool no_driver = false;          // CUDA's driver could not say which

  // It names GPUs (what else it may say, as NoDevFiles, means none), and the first is not there.
  bool NamesMissing() const {
    const bool names = value.starts_with("GPU-") || value.starts_with("MIG-") ||
                       (!value.empty() && '0' <= value[0] && value[0] <= '9');
    return names && uuids.empty();
  }
};

// The GPUs that CUDA offers to a process with this environment, in CUDA's order: the 32 hexadecimal
// digits of each one's UUID. Loads CUDA's driver library in a child process, since nothing of it
// should be in this one. Nothing where the driver is missing, fails, crashes, or does not answer in
// time. To be called while this process has one thread.
std::optional<std::vector<std::string>> AskCuda(const char* library);

// What `value` (null: not set) leaves of the GPUs seen. Integers count in CUDA's order, a UUID may
// be shortened, and the list ends at the first that is not there: the driver decides all of that,
// so `ask` asks it (AskCuda). Where it does not answer no GPU is left, as no program could use one.
VisibleGpus ReadVisibleDevices(const char* value, const GpuSnapshot& seen,
                               const std::function<std::optional<std::vector<std::string>>()>& ask);

// Reads this process's environment.
VisibleGpus VisibleHere(const GpuSnapshot& seen);

}  // namespace muster
