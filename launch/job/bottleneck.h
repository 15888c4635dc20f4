// What limits a run, judged from its measured parts. A pure function.
#pragma once

#include <string>
#include <vector>

#include "proto/events.pb.h"

namespace muster {

// What is said, as (label, text) rows: the largest part of a step and what to try, with the
// numbers that it rests on; and one more row where, beside compute, something else takes a tenth
// of the step or more. Empty where `summary` lacks a step's length, its shares, or a rank's times.
//
// The parts, as shares of a step:
//   compute   the mean arithmetic of all ranks
//   slowest   how much longer the slowest rank of each step computes: shares.imbalance
//   input     what the input pipeline adds to that
//   server    the rest of shares.overhead: adding, updating, gradients and weights on their way
struct BottleneckRow {
  std::string label, text;
};
std::vector<BottleneckRow> Bottleneck(const events::Summary& summary, bool on_gpus = false);

}  // namespace muster
