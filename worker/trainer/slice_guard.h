// Applies the gradient guard to each slice, on any device and level of DeviceGradients, before it
// is rounded or added to another slice, which would hide unwritten values. It is meant for
// debugging, because it waits for the device.
//
// Owned by the trainer and used on its thread.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "worker/backend/backend.h"
#include "worker/client/gradient_guard.h"

namespace muster {

class SliceGuard {
 public:
  // If `guard` is null, calls have no effect. `floats` is the size of a gradient buffer.
  SliceGuard(Backend& backend, std::shared_ptr<const GradientGuard> guard, size_t floats);

  // Marks a whole gradient on the device as unwritten, before a slice is computed into it.
  void Fill(std::span<float> level);
  // Checks [begin, end) after it has been computed. Throws like GradientGuard::Check.
  void Check(std::span<const float> level, size_t begin, size_t end, int64_t slice, int64_t step);

 private:
  Backend& backend_;
  const std::shared_ptr<const GradientGuard> guard_;
  std::vector<float> marked_, copy_;  // host copies, for a device with separate memory
};

}  // namespace muster
