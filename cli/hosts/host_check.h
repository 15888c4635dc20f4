// Compares the hosts of a job before it starts, over ssh and a TCP connection from each.
#pragma once

#include <string>
#include <vector>

#include "cli/cluster/host_list.h"
#include "cli/cluster/server_address.h"
#include "cli/hosts/host_facts.h"
#include "cli/hosts/link_probe.h"
#include "cli/hosts/remote_host.h"
#include "common/base/error.h"
#include "proto/config_fwd.h"

namespace muster {

struct HostQuestion {
  std::vector<Host> hosts;
  SshCommand ssh;
  ServerAddress address;                   // of this host, which the others must reach
  const config::Config* config = nullptr;  // null: there is no job, and no data to count
  double patience_s = 60;                  // for all answers
};

struct CheckedHost {
  Host host;
  HostFacts facts;
  LinkFacts link;
  std::string problem = {};  // why no worker can run there, or ""
  ExitCode code = ExitCode::kOk;
};

// Gives a problem to each host that is a machine named before, and to each that has another number
// of samples than the first one.
void CompareMachines(std::vector<CheckedHost>& hosts);
void CompareData(std::vector<CheckedHost>& hosts);

// Asks all hosts at the same time, and compares them. Call it from the main thread.
std::vector<CheckedHost> CheckHosts(const HostQuestion& question);

// One row for each host, with what must or should be equal.
enum class TableFor { kJob, kDoctor };
std::vector<std::string> HostTable(const std::vector<CheckedHost>& hosts, TableFor use);

// Says that processors differ, or "".
std::string ProcessorsNote(const std::vector<CheckedHost>& hosts);

// Throws the problem of the first host that has one, and names the others' as well.
void RequireGood(const std::vector<CheckedHost>& hosts);

// "+0.3 ms", "-2.1 s"
std::string OffsetText(double seconds);

}  // namespace muster
