// The job's end of `muster server`: the address and the token of workers that somebody else starts,
// on this host or on others. And how tokens are made, for every job.
#pragma once

#include <string>
#include <vector>

#include "cli/job/job_plan.h"
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
void PlanWorkersByHand(const WorkersByHand& by_hand, JobPlan& plan);

// A token is for one run. That of a server that never got to run stays for the next attempt, since
// somebody may have carried it to other hosts.
void ForgetToken(const WorkersByHand& by_hand, const RunDir& dir);

// Where the server listens, and the command lines of its workers. `endpoint`: as the server says
// it, with the port that it got. `token_file` is empty where the token came from the environment.
std::vector<std::string> HandLines(const ListenAddress& address, const std::string& endpoint,
                                   bool encrypted, int workers, const RunDir& dir,
                                   const std::string& token_file);

// The secret that every process of a job knows and nobody else: 128 random bits, as 32 hexadecimal
// digits. The processes of a launch get it in an anonymous file, so it is never in a command line,
// an environment, or a file with a name.
std::string NewToken();

// A new file that only its owner can read, for workers that are started by hand. Throws
// Error(kUsage) if there is a file of this name, or it cannot be written.
void WriteTokenFile(const std::string& path, const std::string& token);

}  // namespace muster
