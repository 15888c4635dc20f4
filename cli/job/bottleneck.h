// Names what limits a run, from the measured parts of its steps. A pure function.
#pragma once

#include <string>

#include "proto/events.pb.h"

namespace muster {

// The largest part of a step, and what to try. Empty if `summary` lacks the length of a step, its
// shares, or the times of a rank.
//
// The parts, as shares of a step:
//   compute   the mean compute time of all ranks
//   slowest   the extra compute time of the slowest rank of each step: shares.imbalance
//   input     the extra time for the input pipeline
//   server    the rest of shares.overhead: reduction, update and communication
std::string Bottleneck(const events::Summary& summary, bool on_gpus = false);

}  // namespace muster
