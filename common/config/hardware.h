// The GPUs that a job requests (worker.devices), and the instruction sets of this host's CPU
// (server.instruction_set).
#pragma once

#include <string>
#include <vector>

#include "proto/config.pb.h"

namespace muster {

struct DeviceWish {
  enum class Kind { kNotSaid, kCpu, kAuto, kNamed };
  Kind kind = Kind::kNotSaid;
  int count = 0;                   // kAuto: 0 if not given
  std::vector<std::string> names;  // kNamed, in the order given: "2", "GPU-8f3a", "MIG-41d7…"

  bool WantsCards() const { return kind == Kind::kAuto || kind == Kind::kNamed; }
};

// Accepts "", "cpu", "auto", "auto:4", or a list "0,2,GPU-8f3a". Throws Error(kUsage).
DeviceWish ParseDevices(const std::string& text);

// Returns the supported sets in ascending order of width. SCALAR is always included.
std::vector<config::Server::InstructionSet> HostInstructionSets();

// Returns `wanted`, or the widest for AUTO. Throws Error(kUsage) if this host does not support it.
config::Server::InstructionSet ChooseInstructionSet(config::Server::InstructionSet wanted);

}  // namespace muster
