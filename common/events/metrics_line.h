// The lines of metrics.jsonl. Users' programs read their keys, so they are spelled out here and
// independent of the event fields.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "proto/events.pb.h"

namespace muster {

inline constexpr const char* kServerRestarted = "server_restarted";

// The line of an event with its time and a newline; "" if the event has none. Restarts and changes
// of members and shares have an `event` key. Their lines stay when steps are undone.
std::string MetricsText(const events::Event& event);
// The same without the time; null if the event has none.
nlohmann::ordered_json MetricsLine(const events::Event& event);
nlohmann::ordered_json MetricsLine(const events::Log& line);
nlohmann::ordered_json MetricsLine(const events::Evaluation& line);
nlohmann::ordered_json MetricsLine(const events::Summary& summary);

// How the run ended: "completed", "failed", "interrupted".
const char* NameOf(events::Summary::End end);

}  // namespace muster
