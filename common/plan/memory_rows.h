// Rows of a table of the memory that a job's processes use.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace muster {

// A piece of memory of one process.
struct MemoryRow {
  enum class Holder {
    kProcess,  // the process's own
    kServer,   // the server's, mapped by this process; counted at the server
    kHost,     // one copy for all processes of the host: a file in the page cache
    kCard,     // on the process's GPU, not in host memory
  };
  std::string what;
  double bytes = 0;
  Holder holder = Holder::kProcess;
};

// The sums of host memory and of GPU memory.
double SumOf(const std::vector<MemoryRow>& rows);
double SumOfCard(const std::vector<MemoryRow>& rows);

}  // namespace muster
