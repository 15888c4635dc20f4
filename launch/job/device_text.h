// What the workers of a job compute on, as they said when they joined.
#pragma once

#include <string>
#include <vector>

#include "proto/config_fwd.h"
#include "proto/events.pb.h"

namespace muster {

// "card", "cpu", or "" of a worker that did not say.
std::string DeviceKind(const events::Started::Worker& worker);

// For a job that asks for CUDA, lines that name cards and libraries, on which its bits depend, and
// the ranks that got none (worker.soft_placement). Empty for all others, whose header has said it
// all.
std::vector<std::string> DeviceTexts(const config::Config& config, const events::Started& started);

}  // namespace muster
