// Small events, and events in words.
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
// State and weights are being written, or will be: each second until they are.
events::Event SavingEvent(int64_t step);

// "rank 1 (host a, pid 42) was lost at step 120: its connection ended; others compute 4 slices; 3
// workers now"
std::string TextOf(const events::MemberChange& change);

// "first; second"; if one of them is empty, the other.
std::string JoinTroubles(const std::string& first, const std::string& second);

// Writes the line that the server's log has of an event, if it has one.
void LogEvent(const events::Event& event);

}  // namespace muster
