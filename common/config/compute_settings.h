// The settings that a worker reads from its own config and that affect its results. The server
// refuses workers whose settings differ before the first step, so that they cannot produce
// different bits.
//
// All other settings belong to the server: it sends workers the plan, the batch and the slices, and
// alone uses the optimizer and the initial weights. Convolutions, dense layers and pools are
// compared as layers of the graph (Graph::Describe).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "proto/config_fwd.h"

namespace muster {

// "path: value", sorted by path: run.seed, the data's format, preprocessing, synthesis and class
// weights, the convolution algorithm, and the layers' settings. A setting at its default is left
// out, even if it is written in the config.
std::vector<std::string> ComputeSettings(const config::Config& config);

// Describes the first setting that differs between the lists; empty if they are equal.
std::optional<std::string> FirstDifference(const std::vector<std::string>& server,
                                           const std::vector<std::string>& worker);

}  // namespace muster
