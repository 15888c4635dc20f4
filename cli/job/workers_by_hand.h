// `muster server`: the address and the token for workers that the user starts, on this host or on
// others.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/job/job_plan.h"
#include "cli/process/token.h"
#include "common/link/tcp_address.h"
#include "proto/config_fwd.h"

namespace muster {

struct WorkersByHand {
  // See ChooseListenAddress. If both are empty and cluster.transport is LOCAL: a new local:// name.
  std::string endpoint, bind;
  std::string token_file;  // empty: MUSTER_TOKEN, or else a new token in the run directory
};

// With the address of cluster.interface, unless the user chose one. Throws Error(kUsage).
WorkersByHand WithInterface(WorkersByHand by_hand, const config::Config& config);

// Throws Error if the address or the token file is wrong. Writes nothing.
void CheckWorkersByHand(const WorkersByHand& by_hand);

// Sets what depends on the address. Chunks are those for sockets if workers of other hosts may join
// (cluster.chunk_bytes). cluster.encryption is set if connections will be encrypted, so that the
// workers that read the config agree with the server. Never sets NONE: the file may be used again
// for another address.
void ResolveAddress(const WorkersByHand& by_hand, config::Config& config);

// The token file that a server made in its run directory. The destructor removes it, so that it
// does not outlive the server, even if the run never began.
class MadeToken {
 public:
  explicit MadeToken(const RunDir& dir) : dir_(dir) {}
  MadeToken(const MadeToken&) = delete;
  MadeToken& operator=(const MadeToken&) = delete;
  ~MadeToken();

 private:
  const RunDir& dir_;
};

// Adds the address, the token and the lines that invite these workers to the plan. The plan must
// not be moved afterwards. Returns the token file that it made; null if the user gave a token.
std::unique_ptr<MadeToken> PlanWorkersByHand(const WorkersByHand& by_hand, JobPlan& plan);

// The lines with the address of the server and the commands of its workers. `endpoint` is the one
// that the server reported, with its port. `token_file` is empty if the token is in the
// environment.
std::vector<std::string> HandLines(const ListenAddress& address, const std::string& endpoint,
                                   bool encrypted, int workers, const RunDir& dir,
                                   const std::string& token_file);

}  // namespace muster
