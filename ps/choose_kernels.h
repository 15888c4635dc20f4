// Which version of the pass's arithmetic runs. All give the same bits.
#pragma once

#include <vector>

#include "proto/config.pb.h"
#include "ps/pass_kernels.h"

namespace muster {

// The versions that this program holds and this processor can run, the widest last. SCALAR is
// always there.
std::vector<const PassKernels*> AvailableKernels();

// Throws Error(kUsage) if the one that was asked for is not available.
const PassKernels& ChooseKernels(config::Server::InstructionSet wanted);

}  // namespace muster
