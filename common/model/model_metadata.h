// What a model file says besides its tensors: whose weights they are, and what is needed to use
// them. docs/PYTORCH.md lists the keys.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "common/graph/graph.h"
#include "proto/config_fwd.h"

namespace muster {

struct ModelInfo {
  int64_t step = 0;      // how many steps the weights have seen
  int64_t updates = 0;   // of these, those that were not skipped
  bool average = false;  // the moving average, not the weights themselves
  uint64_t weights_hash = 0;
  // Of an evaluation of just these weights.
  std::optional<double> validation_accuracy, validation_loss, test_accuracy, test_loss;
};

using Metadata = std::map<std::string, std::string>;

// `config` is resolved; it is there as text, whole.
Metadata ModelMetadata(const config::Config& config, const Graph& graph, const ModelInfo& info);

// Reading it back. `file` names the file in errors. A file that Muster has not written has none of
// this: nothing is returned for what is not there.
std::optional<config::Config> ConfigOf(const Metadata& metadata, const std::string& file);
bool IsAverage(const Metadata& metadata);
std::optional<int64_t> StepOf(const Metadata& metadata);
// `set`: "test" or "validation".
std::optional<double> AccuracyOf(const Metadata& metadata, const std::string& set);
std::optional<double> LossOf(const Metadata& metadata, const std::string& set);

}  // namespace muster
