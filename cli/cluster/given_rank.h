// The rank that a launcher of many processes gave this one: srun, mpirun, torchrun, or a Kubernetes
// Job. Pure functions of the environment.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace muster {

using Environment = std::map<std::string, std::string>;
Environment ThisEnvironment();

// A whole number in an environment variable; empty if the variable is missing or empty. Throws
// Error(kUsage) with the variable's name unless the value is within 0 and `most`.
std::optional<uint32_t> NumberIn(const Environment& environment, const std::string& variable,
                                 uint32_t most);

struct GivenRank {
  std::string engine;      // "Slurm"
  std::string launcher;    // "srun"
  bool is_signed = false;  // no script has set the variables
  std::string variable;    // that holds the rank
  uint32_t rank = 0;
  std::string size_variable;     // "" if this engine does not tell the size
  std::optional<uint32_t> size;  // the number of processes
  uint32_t local_rank = 0;       // among the processes on this host
  uint32_t local_size = 1;       // their number, if this engine tells it
};

// If one launcher runs inside another, such as mpirun or torchrun inside Slurm, the inner one
// counts. Empty if there is none. Throws Error(kUsage) if a variable has an invalid value, or if
// variables contradict each other.
std::optional<GivenRank> FindGivenRank(const Environment& environment);

// The same, but empty instead of an error.
std::optional<GivenRank> FindGivenRankIfClear(const Environment& environment);

// "Slurm, SLURM_PROCID=3, SLURM_STEP_NUM_TASKS=4, local rank 1"
std::string Describe(const GivenRank& given);

// The launchers that FindGivenRank knows, for an error.
std::string KnownLaunchers();

}  // namespace muster
