// What limits a run, judged from its measured parts. A pure function.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace muster {

// What is said, as (label, text) rows: the largest part of a step and what to try, with the
// numbers that it rests on; and one more row where, beside compute, something else takes a tenth
// of the step or more. `summary` is the server's: step_ms, slowest_ms, and compute_ms and input_ms
// of each of `ranks`. Empty where they are missing.
//
// A step lasts as long as its slowest rank's input and arithmetic, and what comes after them:
//   compute   the mean arithmetic of all ranks
//   input     what the rank that is slowest on average waits for its batches
//   slowest   how far its arithmetic is above the mean
//   uneven    how far each step's slowest rank is above that one: ranks that are late in turns
//   server    the rest: adding, updating, gradients and weights on their way
struct BottleneckRow {
  std::string label, text;
};
std::vector<BottleneckRow> Bottleneck(const nlohmann::json& summary);

}  // namespace muster
