// The framing of the server's events: one line of JSON each (proto/PROTOCOL.md, "Events").
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "proto/events.pb.h"

namespace muster {

// The maximum length of a line with its newline; readers refuse longer ones.
inline constexpr size_t kMostEventBytes = 1 << 20;

// Replaces invalid UTF-8 in text, because libprotobuf writes to stderr for each such text and does
// not read it again.
void MakeUtf8(google::protobuf::Message& message);

// Returns the line with its newline. Replaces invalid UTF-8 and drops non-finite numbers.
std::string EventLine(const events::Event& event);

// Parses a line without its newline. Unknown events and fields are skipped; the kind of an unknown
// event is KIND_NOT_SET. Throws Error(kFailure), which quotes the line, if the line is not an
// event.
events::Event ParseEventLine(std::string_view line);

}  // namespace muster
