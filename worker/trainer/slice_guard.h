// The gradient guard of each slice, on whatever device and level of DeviceGradients it is computed:
// before it is rounded or added to another one, which would hide what was not written. For finding
// mistakes: a device of its own is waited for.
//
// Owner and thread: the trainer's.
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
  // `guard` may be null: then nothing is done. `floats`: of an arena.
  SliceGuard(Backend& backend, std::shared_ptr<const GradientGuard> guard, size_t floats);

  // A slice's gradient will be written here, on the device: a whole arena.
  void Fill(std::span<float> level);
  // It has been, in [begin, end). Throws as GradientGuard::Check does.
  void Check(std::span<const float> level, size_t begin, size_t end, int64_t slice, int64_t step);

 private:
  Backend& backend_;
  const std::shared_ptr<const GradientGuard> guard_;
  std::vector<float> marked_, copy_;  // arenas at the host, for a device with memory of its own
};

}  // namespace muster
