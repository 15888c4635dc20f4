// The job's end of `muster server`: the address and the token of workers that somebody else starts,
// on this host or on others.
#pragma once

#include <string>
#include <vector>

#include "cli/job/job_plan.h"
#include "cli/job/run_dir.h"
#include "common/link/tcp_address.h"
#include "proto/config_fwd.h"

namespace muster {

struct WorkersByHand {
  // See ChooseListenAddress; without both, and with cluster.transport LOCAL, a new local:// name.
  std::string endpoint, bind;
  std::string token_file;  // empty: MUSTER_TOKEN, or else a new token in the run directory
};

// What is wrong with these is said before anything is made. Throws Error.
void CheckWorkersByHand(const WorkersByHand& by_hand);

// Writes into the config that connections are encrypted where they will be, so that the workers
// that get it agree with the server. That they will not be is never written: the file may be used
// again for another address.
void ResolveEncryption(const WorkersByHand& by_hand, config::Config& config);

// Gives the plan of a launch the address, the token and the lines that invite these workers. The
// plan must stay where it is.
void PlanWorkersByHand(const WorkersByHand& by_hand, const config::Config& config, JobPlan& plan);

// A token is for one run. That of a server that never got to run stays for the next attempt, since
// somebody may have carried it to other hosts.
void ForgetToken(const WorkersByHand& by_hand, const RunDir& dir);

struct HandAddress {
  ListenAddress address;
  std::string endpoint;  // as the server says it, with the port that it got
  bool encrypted = false;
};

// Where the server listens, and the command lines of its workers. `token_file` is empty where the
// token came from the environment.
std::vector<std::string> HandLines(const HandAddress& where, int workers, const RunDir& dir,
                                   const std::string& token_file);

}  // namespace muster
