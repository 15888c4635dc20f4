// Times as StepTimes has them.
#pragma once

#include <chrono>

namespace muster {

inline double Milliseconds(std::chrono::steady_clock::duration d) {
  return std::chrono::duration<double, std::milli>(d).count();
}

}  // namespace muster
