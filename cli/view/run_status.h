// status.json of a run directory, which the run's server writes while it lives (proto/PROTOCOL.md,
// "The status file").
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

namespace muster {

// Nothing where there is none. Throws Error(kFailure) where it cannot be understood.
std::optional<nlohmann::json> ReadStatus(const std::string& run_dir);

// Whether the server that wrote it still is: on its own host its process is looked for, from
// another one a status that is older than some seconds says no.
bool ServerIsAlive(const nlohmann::json& status);

// Seconds since it was written; below 0 where another host's clock is ahead.
double StatusAge(const nlohmann::json& status);

}  // namespace muster
