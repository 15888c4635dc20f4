// The relay through which the workers of a job on one host reach the server if their GPUs add the
// gradients (worker.gpu_sums).
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "cli/job/job_plan.h"
#include "cli/process/child_process.h"
#include "cli/process/held_file.h"
#include "cli/text/console.h"

namespace muster {

// Whether the GPUs shall add the gradients of this job's workers, if all are on this host.
bool AddsInGpus(const config::Config& config);

// Owned by the launcher's main thread (see ChildProcess). The destructor ends the relay.
class LocalRelay {
 public:
  // `places`: of the workers at present; empty if they use no GPUs that are locked for them.
  LocalRelay(const JobPlan& plan, const HeldFile& token, const std::vector<WorkerPlace>& places,
             Console& console)
      : plan_(plan), token_(token), places_(places), console_(console) {}

  // Starts the relay unless it runs. Returns the endpoint at which this rank reaches the server:
  // the relay's or `server`. Throws Error.
  const std::string& EndpointFor(int rank, const std::string& server);
  // Notices that it has ended. Its workers then end, too. If the relay failed by itself, their
  // replacements do without one.
  void Check();

 private:
  void Start(const std::string& server);

  const JobPlan& plan_;
  const HeldFile& token_;
  const std::vector<WorkerPlace>& places_;
  Console& console_;
  int started_ = 0;
  bool failed_ = false;
  std::string endpoint_;
  std::set<std::string> gpus_;  // that it can see; empty: all
  std::unique_ptr<ChildProcess> process_;
};

}  // namespace muster
