#include "common/config/instruction_set.h"

#include <algorithm>
#include <string>

#include "common/base/error.h"
#include "common/base/join.h"

namespace muster {

// __builtin_cpu_supports asks for the registers to be saved by the kernel, too.
std::vector<config::Server::InstructionSet> HostInstructionSets() {
  std::vector<config::Server::InstructionSet> sets{config::Server::SCALAR};
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx2")) sets.push_back(config::Server::AVX2);
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq")) {
    sets.push_back(config::Server::AVX512);
  }
#endif
  return sets;
}

config::Server::InstructionSet ChooseInstructionSet(config::Server::InstructionSet wanted) {
  const std::vector<config::Server::InstructionSet> sets = HostInstructionSets();
  if (wanted == config::Server::AUTO) return sets.back();
  if (std::ranges::find(sets, wanted) != sets.end()) return wanted;
  std::vector<std::string> names;
  for (const auto set : sets) names.push_back(config::Server::InstructionSet_Name(set));
  throw Error(ExitCode::kUsage,
              "server.instruction_set: the server's processor has no {}; it has {}. AUTO takes the "
              "widest",
              config::Server::InstructionSet_Name(wanted), Join(names, ", "));
}

}  // namespace muster
