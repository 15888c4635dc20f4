// Takes idle GPUs for a job: ranked, locked, looked at again under the lock, and in turn.
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
  size_t count = 1;               // how many of them
  bool named = false;             // all of them, in the order of `pool`; else the best ones
  double free_share = 0;          // of a GPU's memory, what must be free
  std::string what;               // the job, for those who wait: "launch configs/cifar10.txtpb"
  // How to ask for `n` GPUs instead: this and n * fewer_unit. "": by name.
  std::string fewer = "--devices auto:";
  uint32_t fewer_unit = 1;
};

struct TakenGpus {
  std::vector<Gpu> gpus;           // rank by rank, as seen under their locks
  std::vector<UniqueFd> locks;     // of these
  std::unique_ptr<Ticket> ticket;  // says who has them
  std::string reason;              // why these
};

void SleepFor(double seconds);

struct TakeOptions {
  double wait_s = 0;  // for GPUs to come free; 0: not at all
  // For jobs before this one to choose, and for a lock whose holder has no ticket yet: they take a
  // fraction of a second. After quiet_s of it, `say` is told what this job waits for.
  double others_choose_s = 30, quiet_s = 2;
  // Called with each new line about the wait.
  std::function<void(const std::string&)> say = [](const std::string&) {};
  // Waits so long; may throw, which ends the attempt.
  std::function<void(double seconds)> sleep = SleepFor;
};

// Jobs come in turn: no GPU that an earlier job waits for is given to a later one, whichever GPUs
// come free first; jobs whose GPUs are others do not wait for each other. A job takes all of its
// GPUs or none, so no two can wait for one another for ever. Throws Error(kFailure) where there
// are not enough, with who uses which since when; Error(kDeadline) after `wait_s`.
TakenGpus TakeGpus(GpuProbe& probe, const LockFolder& folder, const GpuWish& wish,
                   const TakeOptions& options);

}  // namespace muster
