// The config of a job that only evaluates.
#pragma once

#include <string>
#include <vector>

#include "cli/model/model_source.h"
#include "cli/process/held_file.h"
#include "common/config/config.h"
#include "common/graph/graph.h"
#include "proto/config.pb.h"

namespace muster {

// Which weights, on which data, and how.
struct EvaluationSource {
  std::string from;  // a run directory, a checkpoint or a file
  ModelChoice choice;
  std::string config_path;        // of the network, where the file does not say it; or ""
  std::vector<Setting> settings;  // --set and the options that are short for one
};

// What of a run's config an evaluation depends on: network, data, how workers compute, in which
// format weights travel, the size of a block. The rest is that of a run that keeps nothing, has no
// optimizer state, and whose training batches are as small as they can be.
config::Config EvaluationConfig(const config::Config& run, bool confusion_matrix);

// That config as text, with which LoadConfig begins. Throws
// Error(kUsage) where the file has no config and none is given.
HeldFile WriteEvaluationConfig(const EvaluationSource& source, const OpenedModel& model,
                               bool confusion_matrix);

// The weights of the model fit the network and are finite, or Error(kData) says what is wrong.
void CheckWeights(const OpenedModel& model, const Graph& graph);

}  // namespace muster
