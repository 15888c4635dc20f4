// Reading, checking and resolving a run's config. See proto/config.proto for the settings.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/graph/shape.h"
#include "common/plan/step_plan.h"
#include "proto/config_fwd.h"

namespace muster {

// `--set path.to.key=value`, in the order given: later ones win.
struct Setting {
  std::string path;    // run.epochs
  std::string value;   // 5, "text" (quotes optional), TCP, [3, 3], { type: SGD }
  std::string origin;  // how it was given, for error messages: --set run.epochs=5
};
// Splits "path.to.key=value". Throws Error(kUsage).
Setting ParseSetting(const std::string& text);

// Reads `path`, includes its model file, applies `settings` and checks every value. Throws
// Error(kUsage) with a line for each mistake: file, line, key, what was expected, what is there,
// nearest name. `removed`: gets the settings that were given but no longer exist, with their
// places.
config::Config LoadConfig(const std::string& path, const std::vector<Setting>& settings,
                          std::vector<std::string>* removed = nullptr);

// The same of a text that ConfigText made; `origin` names it in errors.
config::Config ParseConfigText(const std::string& text, const std::string& origin);

// The batch size both ways, whichever the config gives. cluster.workers must be known.
struct BatchSizes {
  int64_t global_batch;
  double per_worker;  // on average
};
BatchSizes ResolveBatch(const config::Config& config);

// The steps of a resolved config on a training set of that size.
StepPlan PlanSteps(const config::Config& config, int64_t train_samples);

// Fills in what depends on this machine and on other settings (workers, slices, threads, absolute
// data directory, the optimizer's defaults of its type), so that the text form of the result
// repeats the run. `cores` is what may be used. Throws Error(kUsage) where the data's directory is
// missing.
void ResolveConfig(config::Config& config, int cores);
// The same without asking for the data.
void ResolveForMachine(config::Config& config, int cores);
// Fills in data.class_names where it is not given and the names are known: from batches.meta.txt of
// CIFAR-10's binary version, or as MNIST's digits. A list that does not have a name for each class
// is left out.
void ResolveClassNames(config::Data& data);
// Whether the data are read from data.dir.
bool NeedsFiles(const config::Data& data);

// The config with every default spelled out.
config::Config WithDefaults(const config::Config& config);
// `config`, resolved, as text with every default spelled out that means something.
std::string ConfigText(const config::Config& config);
// Writes that text. Atomic.
void WriteConfig(const config::Config& config, const std::string& path);

// The shape of a sample after preprocessing, and of one as stored.
Shape StoredShape(const config::Data& data);
Shape InputShape(const config::Data& data);
int64_t DataClasses(const config::Data& data);

// The cores this process may use (affinity mask and cgroup quota).
int AvailableCores();

}  // namespace muster
