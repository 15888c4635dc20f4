// The lines of metrics.jsonl. Users' programs read their keys, so they are spelled out here and
// independent of the event fields.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "proto/events.pb.h"

namespace muster {

nlohmann::ordered_json MetricsLine(const events::Log& line);
nlohmann::ordered_json MetricsLine(const events::Evaluation& line);
nlohmann::ordered_json MetricsLine(const events::Summary& summary);
// Returns the line of any event except a summary, or null if the event has none. Restarts and
// changes of members and shares have an `event` key. Their lines stay when steps are undone.
nlohmann::ordered_json MetricsLine(const events::Event& event);

// How the run ended: "completed", "failed", "interrupted".
const char* NameOf(events::Summary::End end);

}  // namespace muster
