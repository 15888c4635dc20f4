// What `muster eval` and `muster predict` compute: the config, and the worker program that does it.
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

// Which weights, on which data, and how.
struct EvaluationSource {
  std::string from;  // a run directory, a checkpoint or a file
  ModelChoice choice;
  std::string config_path;        // of the network, where the file does not say it; or ""
  std::vector<Setting> settings;  // --set and the options that are short for one
};

// What an evaluation depends on of the config of the model's run, or of the one that is given, and
// the settings; not resolved. Throws Error(kUsage), also where the file has no config and none is
// given.
config::Config LoadEvaluationConfig(const EvaluationSource& source, const OpenedModel& model);

// What is known before anything is computed.
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

// kTest: the test set, or else the validation set.
enum class SetChoice { kTest, kValidation, kTraining };

// The set that is evaluated. Throws Error, also where it has no samples: kUsage where the data have
// no validation set.
SampleSet CountSet(const config::Config& config, SetChoice choice,
                   const std::function<DataCount(const config::Config&)>& count_data);

// The weights of the model fit the network and are finite, or Error(kData) says what is wrong.
void CheckWeights(const OpenedModel& model, const Graph& graph);

struct WorkerCall {
  const std::string& program;
  const EvaluationJob& job;
  const OpenedModel& model;
  std::vector<std::string> words;
  WorkerPlace place = {};
  SignalSource* signals = nullptr;
};

// Has the worker program compute what `words` ask for. `take` gets each line that it prints, and
// says whether it wants more.
void AskWorker(const WorkerCall& call, const std::function<bool(const nlohmann::json&)>& take);

}  // namespace muster
