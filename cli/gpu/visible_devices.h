// CUDA_VISIBLE_DEVICES: the GPUs of this machine that the environment leaves visible.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/gpu/driver_child.h"
#include "cli/gpu/gpu.h"

namespace muster {

struct VisibleGpus {
  bool limited = false;            // whether the variable is set
  std::string value;               // value of the variable
  std::vector<std::string> uuids;  // visible GPUs in the variable's order; all GPUs if not limited
  bool no_driver = false;          // the CUDA driver did not answer

  // Whether the variable names GPUs but the first one does not exist. Other values, such as
  // NoDevFiles, make no GPU visible.
  bool NamesMissing() const {
    const bool names = value.starts_with("GPU-") || value.starts_with("MIG-") ||
                       (!value.empty() && '0' <= value[0] && value[0] <= '9');
    return names && uuids.empty();
  }
};

// Returns the GPUs that CUDA offers to a process with this environment, in CUDA's order, as the 32
// hexadecimal digits of their UUIDs. Loads the CUDA driver library in a child process, to keep it
// out of this one. Returns nothing if the driver is missing, fails or crashes. Throws what
// DriverChild::Ask throws.
std::optional<std::vector<std::string>> AskCuda(const std::string& library,
                                                double patience_s = kDriverSeconds);

// Returns the GPUs that `value` (null: not set) leaves visible. Integers count in CUDA's order, a
// UUID may be shortened, and the list ends at the first unknown entry. Only the driver knows these
// rules, so `ask` queries it (AskCuda). If it does not answer, no GPU is visible, because no
// program could use one.
VisibleGpus ReadVisibleDevices(const char* value, const GpuSnapshot& seen,
                               const std::function<std::optional<std::vector<std::string>>()>& ask);

// Reads the environment of this process.
VisibleGpus VisibleHere(const GpuSnapshot& seen);

}  // namespace muster
