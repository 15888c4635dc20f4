// Looks at the GPUs of this machine.
#pragma once

#include <memory>
#include <string>

#include "cli/gpu/gpu.h"

namespace muster {

enum class LookAtLinks { kNo, kYes };

// Used by one thread. A look makes no context on any GPU, and changes nothing.
class GpuProbe {
 public:
  virtual ~GpuProbe() = default;
  // What is there now. Never throws for what a GPU or the driver does: a GPU that cannot be read
  // has its trouble, and a machine without GPUs says why it has none.
  virtual GpuSnapshot Look(LookAtLinks links = LookAtLinks::kNo) = 0;
};

// NVML, the driver's library of management, loaded when this is called: muster is not linked with
// it. Where it is missing every look finds none. The library is let go when the probe is.
std::unique_ptr<GpuProbe> OpenNvml(const std::string& library = "libnvidia-ml.so.1");

}  // namespace muster
