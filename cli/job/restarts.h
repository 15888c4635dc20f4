// Runs a job through the loss of its server: with it the weights are gone, and the workers have
// nothing to do. All of them end, and another server goes on from the newest whole checkpoint, in
// the same directory, with new workers. Before its first checkpoint the run begins anew.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/job/watch_job.h"
#include "proto/config.pb.h"

namespace muster {

// Decides whether a lost server is started again. Looks at the run's checkpoints.
class Restarts {
 public:
  // So many in a row that led to no newer checkpoint are enough: the next one would not either.
  static constexpr int kMostInVain = 3;

  // `goes_on`: the run began in an earlier job.
  Restarts(const config::Config& config, const RunDir& dir, bool goes_on)
      : config_(config), dir_(dir), had_checkpoint_(goes_on) {}

  // Counts a loss. "": it is started again; else why not.
  std::string WhyNot();
  uint32_t count() const { return count_; }
  // The step of the newest checkpoint, from which the server goes on if it is whole; -1: there was
  // none yet.
  int64_t from_step() const { return newest_; }

 private:
  const config::Config& config_;
  const RunDir& dir_;
  bool had_checkpoint_;
  uint32_t count_ = 0;
  int in_vain_ = 0;
  int64_t newest_ = -1;  // at the last loss
};

// WatchJob, again after each loss of the server, up to config.run.max_restarts times. `plan` is
// changed for it.
JobOutcome WatchJobThroughLosses(JobPlan& plan, SignalSource& signals, Console& console,
                                 JobDisplay& display);

// The loss of the server of a run that is resumed. Where a service manager starts `muster server`
// again, nobody has seen the loss: it is told of as one that `muster launch` has mended. By the run
// directory's status.json: its writer is gone, and has not said how the run ended. Nothing where
// that is not so, or not known.
std::optional<ServerLoss> LostBefore(const std::string& run_dir);

}  // namespace muster
