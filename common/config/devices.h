// worker.devices: which of this machine's cards (GPUs) a job wants.
#pragma once

#include <string>
#include <vector>

namespace muster {

struct DeviceWish {
  enum class Kind { kNotSaid, kCpu, kAuto, kNamed };
  Kind kind = Kind::kNotSaid;
  int count = 0;                   // kAuto: 0 where the number is left open
  std::vector<std::string> names;  // kNamed, in the order given: "2", "GPU-8f3a", "MIG-41d7…"

  bool WantsCards() const { return kind == Kind::kAuto || kind == Kind::kNamed; }
};

// "", "cpu", "auto", "auto:4", or a list of indices and beginnings of UUIDs: "0,2,GPU-8f3a".
// Throws Error(kUsage) with what was expected and what is there.
DeviceWish ParseDevices(const std::string& text);

}  // namespace muster
