// The settings that a worker reads from its own config and that affect its results. The server
// refuses workers whose settings differ before the first step, so that they cannot produce
// different bits.
//
// Only the server uses the other settings: it sends the plan, the batch and the slices to the
// workers, and keeps the optimizer and the initial weights to itself. Convolutions, dense layers
// and pools are compared as layers of the graph (Graph::Describe).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "proto/config_fwd.h"

namespace muster {

// Returns lines "path: value", sorted by path: run.seed; the data's format, preprocessing,
// synthesis and class weights; the convolution algorithm; evaluation.flip; and the layers'
// settings. A setting at its default is omitted, even if the config contains it.
std::vector<std::string> ComputeSettings(const config::Config& config);

// Describes the first setting that differs between the lists; empty if they are equal.
std::optional<std::string> FirstDifference(const std::vector<std::string>& server,
                                           const std::vector<std::string>& worker);

}  // namespace muster
