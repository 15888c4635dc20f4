// Which instruction sets this host's processor has, of those that server.instruction_set names.
#pragma once

#include <vector>

#include "proto/config.pb.h"

namespace muster {

// The widest last. SCALAR is always there.
std::vector<config::Server::InstructionSet> HostInstructionSets();

// `wanted`, or the widest for AUTO. Throws Error(kUsage) if this host does not have it.
config::Server::InstructionSet ChooseInstructionSet(config::Server::InstructionSet wanted);

}  // namespace muster
