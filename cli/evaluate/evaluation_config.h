// The config and the worker program for `muster eval` and `muster predict`.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "cli/data/count_samples.h"
#include "cli/gpu/gpu.h"
#include "cli/model/model_source.h"
#include "cli/process/signal_source.h"
#include "common/config/config.h"
#include "common/graph/graph.h"
#include "proto/config.pb.h"

namespace muster {

// The weights to evaluate, and how.
struct EvaluationSource {
  std::string from;  // a run directory, a checkpoint or a file
  ModelChoice choice;
  std::string config_path;        // for files without a config; or ""
  std::vector<Setting> settings;  // --set and its shorthands
};

// Returns the parts of the run's config, or of the given one, that an evaluation depends on, with
// the settings applied; not resolved. Throws Error(kUsage), for example if there is no config, or
// if a setting has no effect on an evaluation.
config::Config LoadEvaluationConfig(const EvaluationSource& source, const OpenedModel& model);

// Throws Error(kUsage) if the validation set of this config contains samples that the run trained
// on.
void RefuseTrainedSamples(const EvaluationSource& source, const OpenedModel& model,
                          const config::Config& config);

struct EvaluationJob {
  explicit EvaluationJob(config::Config resolved);

  config::Config config;
  Graph graph;
  std::vector<std::string> class_names;
};

struct SampleSet {
  const char* name;  // "test"
  int64_t size;
};

// kTest is the test set, or the validation set if there is none.
enum class SetChoice { kTest, kValidation, kTraining };

// Returns the set to evaluate. Throws Error, for example if the set has no samples, and with kUsage
// if the data have no validation set.
SampleSet CountSet(const config::Config& config, SetChoice choice,
                   const std::function<DataCount(const config::Config&)>& count_data);

// Throws Error(kData) unless the model's weights fit the network and are finite.
void CheckWeights(const OpenedModel& model, const Graph& graph);

struct WorkerCall {
  const std::string& program;
  const EvaluationJob& job;
  const OpenedModel& model;
  std::vector<std::string> words;
  WorkerPlace place = {};
  SignalSource* signals = nullptr;
};

// Runs the worker program with the arguments `words`. Calls `take` for each line that it prints,
// until `take` returns false.
void AskWorker(const WorkerCall& call, const std::function<bool(const nlohmann::json&)>& take);

}  // namespace muster
