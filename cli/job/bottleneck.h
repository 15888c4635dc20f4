// Names what limits a run, from the measured parts of its steps. A pure function.
#pragma once

#include <cstdint>
#include <string>

#include "proto/config_fwd.h"
#include "proto/events.pb.h"

namespace muster {

// How workers on this host share its cores, and what to use instead: "4 workers share 2 cores: use
// --workers 2". Empty if there are enough cores for all threads of all workers, or only one worker.
std::string CrowdText(int64_t workers, int64_t threads_each, int64_t cores);

// Whether worker.precision BF16 would be faster on this host's CPU.
bool CouldUseBf16(const config::Config& config);

// The largest part of a step, and what to try; on CPUs only `crowd` (see CrowdText) if there is
// any, because threads that wait for a core make every part longer. Empty if `summary` lacks the
// length of a step, its shares, or the times of a rank.
//
// The parts, as shares of a step:
//   compute   the mean compute time of all ranks
//   slowest   the extra compute time of the slowest rank of each step: shares.imbalance
//   input     the extra time for the input pipeline
//   server    the rest of shares.overhead: reduction, update and communication
//
// could_use_bf16: whether these CPUs would be faster with worker.precision BF16.
std::string Bottleneck(const events::Summary& summary, bool on_gpus = false,
                       const std::string& crowd = "", bool could_use_bf16 = false);

}  // namespace muster
