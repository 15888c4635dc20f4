// What the arrays of a job's processes have in common: rows of a table of them, and which memory
// the processes share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/config_fwd.h"

namespace muster {

// Some memory of one process.
struct MemoryRow {
  enum class Holder {
    kProcess,  // its own
    kServer,   // the server's, mapped by this process too: counted there already
    kHost,     // one copy for all processes of the host: a file in the system's cache
  };
  std::string what;
  double bytes = 0;
  Holder holder = Holder::kProcess;
};

double SumOf(const std::vector<MemoryRow>& rows);

// Whether server and workers of one host map the same weights and gradients. AUTO does where it
// can, which is always, but for old kernels.
bool SharesMemory(const config::Config& config);

}  // namespace muster
