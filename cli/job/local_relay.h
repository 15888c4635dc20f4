// The relay of this host, through which the workers of a job reach the server if their GPUs add
// the gradients (worker.gpu_sums). On other hosts the agent starts it.
#pragma once

#include <memory>
#include <string>

#include "cli/job/job_plan.h"
#include "cli/process/child_process.h"
#include "cli/process/held_file.h"
#include "cli/text/console.h"

namespace muster {

// Whether the GPUs of this host add the gradients of this job's workers.
bool AddsInGpus(const config::Config& config);

// Owned by the launcher's main thread (see ChildProcess). The destructor ends the relay.
class LocalRelay {
 public:
  LocalRelay(const JobPlan& plan, const HeldFile& token, Console& console)
      : plan_(plan), token_(token), console_(console) {}

  // Starts the relay unless it runs. Returns the endpoint of its workers. `server`: the server's.
  // Throws Error.
  const std::string& Require(const std::string& server);
  // Notices that it has ended. Its workers then end, too, and their replacements need another one.
  void Check();

 private:
  const JobPlan& plan_;
  const HeldFile& token_;
  Console& console_;
  int started_ = 0;
  std::string endpoint_;
  std::unique_ptr<ChildProcess> process_;
};

}  // namespace muster
