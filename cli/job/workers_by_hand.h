// `muster server`: the address and the token for workers that the user starts, on this host or on
// others. Also creates the tokens of all other jobs.
#pragma once

#include <string>
#include <vector>

#include "cli/job/job_plan.h"
#include "common/link/tcp_address.h"
#include "proto/config_fwd.h"

namespace muster {

struct WorkersByHand {
  // See ChooseListenAddress. If both are empty and cluster.transport is LOCAL: a new local:// name.
  std::string endpoint, bind;
  std::string token_file;  // empty: MUSTER_TOKEN, or else a new token in the run directory
};

// Throws Error if the address or the token file is wrong. Writes nothing.
void CheckWorkersByHand(const WorkersByHand& by_hand);

// Sets cluster.encryption in the config if connections will be encrypted, so that the workers that
// read it agree with the server. Never sets NONE: the file may be used again for another address.
void ResolveEncryption(const WorkersByHand& by_hand, config::Config& config);

// Adds the address, the token and the lines that invite these workers to the plan. The plan must
// not be moved afterwards.
void PlanWorkersByHand(const WorkersByHand& by_hand, JobPlan& plan);

// Removes the token of a run that has started. The token of a server that failed to start stays for
// the next attempt, because it may have been copied to other hosts.
void ForgetToken(const WorkersByHand& by_hand, const RunDir& dir);

// The lines with the address of the server and the commands of its workers. `endpoint` is the one
// that the server reported, with its port. `token_file` is empty if the token is in the
// environment.
std::vector<std::string> HandLines(const ListenAddress& address, const std::string& endpoint,
                                   bool encrypted, int workers, const RunDir& dir,
                                   const std::string& token_file);

// The shared secret of the processes of a job: 128 random bits, as 32 hexadecimal digits. `muster
// launch` passes it in an anonymous file, so it never appears in a command line, an environment, or
// a named file.
std::string NewToken();

// Writes a new file that only its owner can read, for workers that are started by hand. Throws
// Error(kUsage) if the file exists or cannot be written.
void WriteTokenFile(const std::string& path, const std::string& token);

}  // namespace muster
