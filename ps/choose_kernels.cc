#include "ps/choose_kernels.h"

#include "common/base/error.h"
#include "common/config/instruction_set.h"

namespace muster {

extern const PassKernels kScalarPassKernels;
#ifdef __x86_64__
extern const PassKernels kAvx2PassKernels, kAvx512PassKernels;
#endif

namespace {

const PassKernels& KernelsFor(config::Server::InstructionSet set) {
#ifdef __x86_64__
  if (set == config::Server::AVX2) return kAvx2PassKernels;
  if (set == config::Server::AVX512) return kAvx512PassKernels;
#endif
  MUSTER_CHECK(set == config::Server::SCALAR);
  return kScalarPassKernels;
}

}  // namespace

std::vector<const PassKernels*> AvailableKernels() {
  std::vector<const PassKernels*> available;
  for (const auto set : HostInstructionSets()) available.push_back(&KernelsFor(set));
  return available;
}

const PassKernels& ChooseKernels(config::Server::InstructionSet wanted) {
  return KernelsFor(ChooseInstructionSet(wanted));
}

}  // namespace muster
