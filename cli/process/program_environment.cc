#include "cli/process/program_environment.h"

#include <fmt/core.h>

namespace muster {

std::vector<std::string> ProgramEnvironment(const ProgramPlace& place) {
  const size_t slash = place.worker_program.rfind('/');
  return {"MUSTER_ENDPOINT=" + place.endpoint,
          "MUSTER_CONFIG=" + place.config,
          "MUSTER_TOKEN=" + place.token,
          "MUSTER_PROGRAMS=" + place.worker_program.substr(0, slash),
          fmt::format("MUSTER_RANK={}", place.rank),
          fmt::format("MUSTER_SEED={}", place.seed),
          "PYTHONUNBUFFERED=1",  // prints appear when they happen
          fmt::format("OMP_NUM_THREADS={}", place.threads)};
}

}  // namespace muster
