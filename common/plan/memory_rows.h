// Rows of the table that shows the memory use of a job's processes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace muster {

// A piece of memory of one process.
struct MemoryRow {
  enum class Holder {
    kProcess,  // private to the process
    kServer,   // owned by the server and mapped by this process; counted only for the server
    kHost,     // one copy for all processes of the host: a file in the page cache
    kCard,     // on the process's GPU, not in the host's memory
  };
  std::string what;
  double bytes = 0;
  Holder holder = Holder::kProcess;
};

// Return the sums of host memory and of GPU memory, in bytes.
double SumOf(const std::vector<MemoryRow>& rows);
double SumOfCard(const std::vector<MemoryRow>& rows);

}  // namespace muster
