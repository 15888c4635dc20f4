// What limits a run, judged from its measured parts. A pure function.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace muster {

// What is said, as (label, text) rows: the largest part of a step and what to try, with the
// numbers that it rests on; and one more row where, beside compute, something else takes a tenth
// of the step or more. `summary` is the server's: step_ms, overhead_share, input_share,
// imbalance_share (ps/step_balance.h), and compute_ms and input_ms of each of `ranks`. Empty where
// they are missing.
//
// The parts, as shares of a step:
//   compute   the mean arithmetic of all ranks
//   slowest   how much longer the slowest rank of each step computes: imbalance_share
//   input     what the input pipeline adds to that
//   server    the rest of overhead_share: adding, updating, gradients and weights on their way
struct BottleneckRow {
  std::string label, text;
};
std::vector<BottleneckRow> Bottleneck(const nlohmann::json& summary);

}  // namespace muster
