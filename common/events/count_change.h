// Counts a change of the members in a run's summary.
#pragma once

#include "proto/events.pb.h"

namespace muster {

void CountChange(const events::MemberChange& change, events::Summary& summary);

}  // namespace muster
