#include "ps/instruction_set.h"

#include <fmt/ranges.h>

#include <string>

#include "common/error.h"

namespace muster {

extern const PassKernels kScalarPassKernels;
#ifdef __x86_64__
extern const PassKernels kAvx2PassKernels, kAvx512PassKernels;
#endif

// __builtin_cpu_supports asks for the registers to be saved by the kernel, too.
std::vector<const PassKernels*> AvailableKernels() {
  std::vector<const PassKernels*> available{&kScalarPassKernels};
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx2")) available.push_back(&kAvx2PassKernels);
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq")) {
    available.push_back(&kAvx512PassKernels);
  }
#endif
  return available;
}

const PassKernels& ChooseKernels(config::Server::InstructionSet wanted) {
  const std::vector<const PassKernels*> available = AvailableKernels();
  if (wanted == config::Server::AUTO) return *available.back();
  const std::string name = config::Server::InstructionSet_Name(wanted);
  std::vector<std::string> names;
  for (const PassKernels* kernels : available) {
    if (kernels->name == name) return *kernels;
    names.push_back(kernels->name);
  }
  throw Error(ExitCode::kUsage,
              "server.instruction_set: the server's processor has no {}; it has {}. AUTO takes the "
              "widest",
              name, fmt::join(names, ", "));
}

}  // namespace muster
