// Updates a summary for a change of the members.
#pragma once

#include "proto/events.pb.h"

namespace muster {

void CountChange(const events::MemberChange& change, events::Summary& summary);

}  // namespace muster
