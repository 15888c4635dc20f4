// Takes idle GPUs for a job: ranks them, locks them, and checks them again under the lock. Jobs
// take turns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cli/gpu/gpu.h"
#include "cli/gpu/lock_folder.h"
#include "cli/gpu/ticket.h"
#include "common/base/fd.h"

namespace muster {

struct GpuWish {
  std::vector<std::string> pool;  // UUIDs of the GPUs that may be taken
  size_t count = 1;               // the number of GPUs to take
  bool named = false;             // take all of `pool`, in its order; otherwise the best ones
  double free_share = 0;          // the share of a GPU's memory that must be free
  std::string what;               // the job, for waiting users: "launch configs/cifar10.txtpb"
  // How to request n GPUs instead: this option, followed by n * fewer_unit. "": name them.
  std::string fewer = "--devices auto:";
  uint32_t fewer_unit = 1;
};

struct TakenGpus {
  std::vector<Gpu> gpus;           // in rank order, as seen while locked
  std::vector<GpuLock> locks;      // one for each GPU
  std::unique_ptr<Ticket> ticket;  // names the job that has them
  std::string reason;              // reason for the choice
};

void SleepFor(double seconds);

struct TakeOptions {
  double wait_s = 0;  // the longest wait for free GPUs; 0: do not wait
  // The longest wait for earlier jobs to choose, and for the holder of a lock to write its ticket,
  // which usually takes a fraction of a second. After quiet_s, `say` reports the wait.
  double others_choose_s = 30, quiet_s = 2;
  // Called with each new message about the wait.
  std::function<void(const std::string&)> say = [](const std::string&) {};
  // Sleeps; may throw, which ends the attempt.
  std::function<void(double seconds)> sleep = SleepFor;
};

// Jobs take turns: a later job never gets a GPU that an earlier one waits for. Jobs with disjoint
// pools do not wait for each other. A job takes all of its GPUs or none, so there is no deadlock.
// If there are not enough, throws an Error that lists the user of each GPU: kFailure, or kDeadline
// after `wait_s`.
TakenGpus TakeGpus(GpuProbe& probe, const LockFolder& folder, const GpuWish& wish,
                   const TakeOptions& options);

}  // namespace muster
