// Which version of the pass's arithmetic runs. All give the same bits.
#pragma once

#include <vector>

#include "proto/config.pb.h"
#include "ps/update/update_kernels.h"

namespace muster {

// The versions that this program holds and this processor can run, the widest last. SCALAR is
// always there.
std::vector<const UpdateKernelTable*> AvailableKernels();

// Throws Error(kUsage) if the one that was asked for is not available.
const UpdateKernelTable& ChooseKernels(config::Server::InstructionSet wanted);

}  // namespace muster
