#include "ps/update/choose_kernels.h"

#include "common/base/error.h"
#include "common/config/hardware.h"

namespace muster {

extern const UpdateKernelTable kScalarUpdateKernels;
#ifdef __x86_64__
extern const UpdateKernelTable kAvx2UpdateKernels, kAvx512UpdateKernels;
#endif

namespace {

const UpdateKernelTable& KernelsFor(config::Server::InstructionSet set) {
#ifdef __x86_64__
  if (set == config::Server::AVX2) return kAvx2UpdateKernels;
  if (set == config::Server::AVX512) return kAvx512UpdateKernels;
#endif
  MUSTER_CHECK(set == config::Server::SCALAR);
  return kScalarUpdateKernels;
}

}  // namespace

std::vector<const UpdateKernelTable*> AvailableKernels() {
  std::vector<const UpdateKernelTable*> available;
  for (const auto set : HostInstructionSets()) available.push_back(&KernelsFor(set));
  return available;
}

const UpdateKernelTable& ChooseKernels(config::Server::InstructionSet wanted) {
  return KernelsFor(ChooseInstructionSet(wanted));
}

}  // namespace muster
