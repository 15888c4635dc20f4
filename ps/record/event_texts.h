// Constructors of simple events, and texts of events.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "proto/events.pb.h"

namespace muster {

events::Event WarningEvent(const std::string& message);
events::Event FailureEvent(const JobFailure& failure);
events::Event WaitingEvent(const std::vector<uint32_t>& missing, double elapsed_s);
// Reports that state and weights are pending or being written. Sent every second.
events::Event SavingEvent(int64_t step, bool waits_for_programs = false);

// "rank 1 (host a, pid 42) was lost at step 120: its connection ended; others compute 4 slices; 3
// workers now"
std::string TextOf(const events::MemberChange& change);

// Returns "first; second". If one of them is empty, returns the other.
std::string JoinTroubles(const std::string& first, const std::string& second);

// Writes the event to the server's log, if it belongs there.
void LogEvent(const events::Event& event);

}  // namespace muster
