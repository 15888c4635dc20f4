// Selects the instruction set of the update kernels. All of them compute the same bits.
#pragma once

#include <vector>

#include "proto/config.pb.h"
#include "ps/update/update_kernels.h"

namespace muster {

// The kernels that this program contains and this processor can run, widest last. Always includes
// SCALAR.
std::vector<const UpdateKernelTable*> AvailableKernels();

// Throws Error(kUsage) if the requested instruction set is unavailable.
const UpdateKernelTable& ChooseKernels(config::Server::InstructionSet wanted);

}  // namespace muster
