// The GPUs that a job wants (worker.devices), and the instruction sets of this host's processor
// (server.instruction_set).
#pragma once

#include <string>
#include <vector>

#include "proto/config.pb.h"

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

// The widest last. SCALAR is always there.
std::vector<config::Server::InstructionSet> HostInstructionSets();

// `wanted`, or the widest for AUTO. Throws Error(kUsage) if this host does not have it.
config::Server::InstructionSet ChooseInstructionSet(config::Server::InstructionSet wanted);

}  // namespace muster
