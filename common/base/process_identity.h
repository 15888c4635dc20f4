// Which process it was, so that another one, which was given its number later, is not taken for it.
#pragma once

#include <cstdint>
#include <string>

namespace muster {

struct ProcessIdentity {
  std::string host;
  int64_t pid = 0;
  uint64_t started = 0;  // in the kernel's ticks since the host began
};

std::string HostName();
ProcessIdentity ThisProcess();

// Of a process of this host: whether it runs, or is stopped. One that has ended and was not waited
// for is not alive.
bool IsAlive(const ProcessIdentity& process);

}  // namespace muster
