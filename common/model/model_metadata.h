// The metadata of a model file: the origin of the weights, and what is needed to use them.
// docs/PYTORCH.md lists the keys.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "common/graph/graph.h"
#include "proto/config_fwd.h"

namespace muster {

struct ModelInfo {
  int64_t step = 0;      // number of training steps
  int64_t updates = 0;   // number of steps that were not skipped
  bool average = false;  // the moving average instead of the weights themselves
  uint64_t weights_hash = 0;
  // Results of an evaluation of exactly these weights.
  std::optional<double> validation_accuracy, validation_loss, test_accuracy, test_loss;
};

using Metadata = std::map<std::string, std::string>;

// `config` must be resolved; the metadata contains its full text.
Metadata ModelMetadata(const config::Config& config, const Graph& graph, const ModelInfo& info);

// These functions read the metadata. Errors name `file`. The result is empty if the key is missing.
std::optional<config::Config> ConfigOf(const Metadata& metadata, const std::string& file);
bool IsAverage(const Metadata& metadata);
std::optional<int64_t> StepOf(const Metadata& metadata);
// `set` is "test" or "validation".
std::optional<double> AccuracyOf(const Metadata& metadata, const std::string& set);
std::optional<double> LossOf(const Metadata& metadata, const std::string& set);

}  // namespace muster
