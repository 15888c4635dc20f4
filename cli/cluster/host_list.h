// The hosts of a job that the user lists, in the formats of Open MPI, Horovod and DeepSpeed. Pure
// functions, except for reading the file and resolving names.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace muster {

struct Host {
  std::string name;    // as typed; ssh gets it: "a", "user@10.0.0.2"
  uint32_t slots = 1;  // the number of workers
  bool here = false;   // whether this process runs on it
  // The endpoint at which its relay may listen for those of other hosts. Empty if it is not known,
  // or if the host cannot have a relay.
  std::string relay = {};
  double clock_ahead_s = 0;  // its CLOCK_MONOTONIC minus that of this process's host
};

// "a:4,user@b:2,c". A host without a number has one slot. `origin` names the list in errors: "-H".
// Throws Error(kUsage) if the list is empty or malformed, or names a host twice.
std::vector<Host> ParseHosts(const std::string& origin, const std::string& text);

// Lines such as "a slots=4", "a:4" or "a", with comments after #. Throws Error(kUsage).
std::vector<Host> ReadHostfile(const std::string& path);

// Finds the host that is this one. Throws Error(kUsage) if there are two.
void FindHere(const std::string& origin, std::vector<Host>& hosts);

uint32_t SlotsOf(const std::vector<Host>& hosts);

// Whether this name means this host: localhost, its own name, or a name or address that leads to
// it. A name with another user than this process's does not.
bool IsThisHost(const std::string& name);

}  // namespace muster
