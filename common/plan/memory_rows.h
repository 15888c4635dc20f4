// Rows of a table of what the arrays of a job's processes take.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace muster {

// Some memory of one process.
struct MemoryRow {
  enum class Holder {
    kProcess,  // its own
    kServer,   // the server's, mapped by this process too: counted there already
    kHost,     // one copy for all processes of the host: a file in the system's cache
    kCard,     // on the card that the process computes on: none of the host's
  };
  std::string what;
  double bytes = 0;
  Holder holder = Holder::kProcess;
};

// Of the host's memory, and of a card's.
double SumOf(const std::vector<MemoryRow>& rows);
double SumOfCard(const std::vector<MemoryRow>& rows);

}  // namespace muster
