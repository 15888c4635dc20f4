// The lines of metrics.jsonl. Their keys are what users' programs read: they are written out here,
// whatever becomes of the events with the same numbers.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "proto/events.pb.h"

namespace muster {

nlohmann::ordered_json MetricsLine(const events::Log& line);
nlohmann::ordered_json MetricsLine(const events::Evaluation& line);
nlohmann::ordered_json MetricsLine(const events::Summary& summary);
// An event, which has `event` and no `step`: it is of a moment, and stays when steps are undone.
nlohmann::ordered_json MetricsLine(const events::Restarted& restarted);
nlohmann::ordered_json MetricsLine(const events::MemberChange& change);
nlohmann::ordered_json MetricsLine(const events::SharesChanged& change);

}  // namespace muster
