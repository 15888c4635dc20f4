// Adds a change of the members to what a summary says of them.
#pragma once

#include "proto/events.pb.h"

namespace muster {

void CountChange(const events::MemberChange& change, events::Summary& summary);

}  // namespace muster
