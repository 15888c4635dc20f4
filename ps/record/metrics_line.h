// The lines of metrics.jsonl. Their keys are what users' programs read: they are written out here,
// whatever becomes of the events with the same numbers.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "proto/events.pb.h"

namespace muster {

nlohmann::ordered_json MetricsLine(const events::Log& line);
nlohmann::ordered_json MetricsLine(const events::Evaluation& line);
nlohmann::ordered_json MetricsLine(const events::Summary& summary);
// The line of any event but a summary; null if it has none. Restarts and changes of members and
// shares have `event` and are of a moment: they stay when steps are undone.
nlohmann::ordered_json MetricsLine(const events::Event& event);

// How a run has ended: "completed", "failed", "interrupted".
const char* NameOf(events::Summary::End end);

}  // namespace muster
