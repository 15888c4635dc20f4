// Finds work that kills any worker that computes it.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "ps/members/roster.h"
#include "ps/run/run_position.h"
#include "ps/run/run_work.h"

namespace muster {

// Returns a worker's items in processing order: urgent slices, its share of the evaluation of
// W(step), its own slices, and last the blocks of other workers.
std::vector<WorkItem> HeldItems(const RunWork& work, const RunPosition& state, const Roster& roster,
                                uint32_t rank);

// Call when a worker is lost, before its work is unassigned. Notes the item that it was probably
// computing. Returns the description of a slice or block that has killed too many workers, or "".
std::string FindPoison(RunWork& work, const RunPosition& state, const Roster& roster, uint32_t rank,
                       std::chrono::steady_clock::time_point now);

}  // namespace muster
