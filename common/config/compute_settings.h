// What a worker takes from its own config and computes with, so that workers whose configs differ
// are refused before the first step instead of giving other bits.
//
// Everything else is the server's: it tells workers the plan, the batch and the slices, and keeps
// the optimizer and the initial weights to itself. Convolutions, dense layers and pools are
// compared as layers of the graph (Graph::Describe).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "proto/config_fwd.h"

namespace muster {

// "path: value", sorted by path: run.seed, the data's format, preprocessing, synthesis and class
// weights, how convolutions are worked out, and the layers' settings. A setting at its default is
// left out, whether it is written or not.
std::vector<std::string> ComputeSettings(const config::Config& config);

// Names the first setting in which two such lists differ; empty if they are the same.
std::optional<std::string> FirstDifference(const std::vector<std::string>& server,
                                           const std::vector<std::string>& worker);

}  // namespace muster
