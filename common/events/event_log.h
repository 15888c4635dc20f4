// run.events in a run directory: every event of a run that matters later, in order, and its present
// status (proto/PROTOCOL.md, "The event file"). Readers need no lock, and run on any host that
// shares the disk.
#pragma once

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <optional>
#include <string>

#include "proto/events.pb.h"

namespace muster {

inline constexpr const char* kEventLog = "run.events";
// The file begins with two pages, which the server writes alternately: a write or read that is torn
// hides only the newer status. Only the used blocks of a page take space. A page has room for more
// ranks than a job may have.
inline constexpr uint64_t kStatusPage = 256 << 10, kFirstRecord = 2 * kStatusPage;

// Whether the log keeps the event: not those of a moment, nor refusals of strangers, which must not
// fill the disk.
bool IsDurable(const events::Event& event);
// Its record in the log. Invalid UTF-8 becomes U+FFFD.
std::string LogRecord(events::Event event);

// Visits the events of a log that count, in order: none that a later `begun` undid. `first`: where
// the records begin; positions are counted from there. Returns whether there is a `begun`. If not,
// the lines of metrics.jsonl count instead. Reads the log twice.
bool ForEachStanding(std::istream& log, uint64_t first,
                     const std::function<void(const events::Event&, int64_t position)>& visit);

// Returns the newest readable status, or nothing. Throws Error(kData) if `path` is not a plain
// file.
std::optional<events::Status> ReadStatusPage(const std::string& path);
// In protobuf's JSON form, with all fields that are known.
std::string StatusJson(const events::Status& status);

}  // namespace muster
