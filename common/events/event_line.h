// The framing of the server's events: a line of JSON each (proto/PROTOCOL.md, "Events").
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "proto/events.pb.h"

namespace muster {

// Of one line, with its newline; a reader takes no longer one.
inline constexpr size_t kMostEventBytes = 1 << 20;

// With its newline. Text that is no UTF-8 is made so; a number that is not finite is left out.
std::string EventLine(const events::Event& event);

// `line` without its newline. An event or a field that this program does not know is left out: the
// kind of such an event is KIND_NOT_SET. Throws Error(kFailure), which quotes the line, for what is
// no event at all.
events::Event ParseEventLine(std::string_view line);

}  // namespace muster
