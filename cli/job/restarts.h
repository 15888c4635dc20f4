// Continues a job after the loss of its server, and of the weights with it. All workers end, and a
// new server with new workers resumes from the newest intact checkpoint in the same directory.
// Before its first checkpoint, the run starts over.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/job/watch_job.h"
#include "proto/config.pb.h"

namespace muster {

// Decides whether a lost server is restarted, based on the run's checkpoints.
class Restarts {
 public:
  // Maximum number of restarts in a row without a newer checkpoint.
  static constexpr int kMostInVain = 3;

  // `goes_on`: the run started in an earlier job.
  Restarts(const config::Config& config, const RunDir& dir, bool goes_on)
      : config_(config), dir_(dir), had_checkpoint_(goes_on) {}

  // Counts a loss. Returns why the server is not restarted, or "" if it is.
  std::string WhyNot();
  uint32_t count() const { return count_; }
  // The step of the newest intact checkpoint, from which the server resumes; -1: none yet.
  int64_t from_step() const { return newest_; }

 private:
  const config::Config& config_;
  const RunDir& dir_;
  bool had_checkpoint_;
  uint32_t count_ = 0;
  int in_vain_ = 0;
  int64_t newest_ = -1;  // at the last loss
};

// Calls WatchJob, and again after each loss of the server, up to config.run.max_restarts times. If
// the next job cannot be started, tries again for 5 minutes. Updates `plan` for each restart.
JobOutcome WatchJobThroughLosses(JobPlan& plan, SignalSource& signals, Console& console,
                                 JobDisplay& display);

// The loss of the previous server of a resumed run, if its status shows one: the writer is
// gone and did not record how the run ended. A service manager that restarts `muster server` does
// not report the loss, so it is recorded like one that `muster launch` has handled.
std::optional<ServerLoss> LostBefore(const std::string& run_dir);

}  // namespace muster
