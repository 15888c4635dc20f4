// Measures the network between each two hosts, through the agent on each (host_agent.h).
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "cli/hosts/link_probe.h"
#include "cli/hosts/remote_host.h"

namespace muster {

struct ProbedHost {
  std::string name;
  std::string address;  // at which the others reach it
  bool here = false;    // only the first one may be
};

// As in a job, where the server or the relay of an earlier host listens, the earlier host of each
// pair listens and the later one connects.
struct PairLink {
  size_t first = 0, second = 0;  // the numbers of the hosts
  LinkFacts link = {};           // as the first one sees it
  std::string problem = {};      // why it could not be measured, or ""
};

// Rounds of pairs of the numbers below `hosts`: each pair once, and no number twice in a round.
std::vector<std::vector<std::pair<size_t, size_t>>> PairRounds(size_t hosts);

// The pairs of a round are measured at the same time, for about a second. Call it from the main
// thread.
std::vector<PairLink> MeasurePairs(const SshCommand& ssh, const std::vector<ProbedHost>& hosts);

}  // namespace muster
