// Algorithms that are chosen by timing them (worker.autotune), where a device has several for a
// product or a convolution. Other algorithms give other bits, so all workers of a job use one
// choice, as the server has it (wire.Tuning).
//
// Owner and thread: the backend's.
#pragma once

#include <string>

namespace muster {

struct TuningResult {
  std::string choice;   // text of the backend's, for Use
  std::string summary;  // what was timed, for people
};

class Tuning {
 public:
  virtual ~Tuning() = default;
  // From now on the algorithms that an op could use are timed when it is made; of several equal
  // ops those of the first.
  virtual void Measure() = 0;
  // Ends that. What was not timed, for lack of memory or time, goes by shape.
  virtual TuningResult Result() = 0;
  // Ops that are made from now on use this choice; what it does not name goes by shape. Throws
  // Error(kData): it is damaged, was made on another card or by other libraries, or these cannot
  // do what it says.
  virtual void Use(const std::string& choice) = 0;
};

}  // namespace muster
