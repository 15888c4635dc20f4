// What limits a run, judged from its measured parts. A pure function.
#pragma once

#include <string>

#include "proto/events.pb.h"

namespace muster {

// The largest part of a step, and what to try. Empty where `summary` lacks a step's length, its
// shares, or a rank's times.
//
// The parts, as shares of a step:
//   compute   the mean arithmetic of all ranks
//   slowest   how much longer the slowest rank of each step computes: shares.imbalance
//   input     what the input pipeline adds to that
//   server    the rest of shares.overhead: adding, updating, gradients and weights on their way
std::string Bottleneck(const events::Summary& summary, bool on_gpus = false);

}  // namespace muster
