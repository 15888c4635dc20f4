// Work that ends whoever does it, found when a worker is lost.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "ps/members/roster.h"
#include "ps/run/run_position.h"
#include "ps/run/run_work.h"

namespace muster {

// The worker was lost, and its work is still its own. Notes what it may have been lost at. Returns
// the slice or block that has ended too many workers, in words; "": none.
std::string FindPoison(RunWork& work, const RunPosition& state, const Roster& roster, uint32_t rank,
                       std::chrono::steady_clock::time_point now);

}  // namespace muster
