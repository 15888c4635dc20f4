// Reads, checks and resolves a run's config. See proto/config.proto for the settings.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/graph/shape.h"
#include "common/plan/step_plan.h"
#include "proto/config_fwd.h"

namespace muster {

// `--set path.to.key=value`. Later settings override earlier ones.
struct Setting {
  std::string path;    // run.epochs
  std::string value;   // 5, "text" (quotes optional), TCP, [3, 3], { type: SGD }
  std::string origin;  // as given by the user, for error messages: --set run.epochs=5
};
// Splits "path.to.key=value". Throws Error(kUsage).
Setting ParseSetting(const std::string& text);

// Reads `path`, includes its model file, applies `settings`, looks up the classes of the data and
// checks every value. Throws Error(kUsage) with a line for each mistake: file, line, key, expected
// value, actual value, nearest name. The config.txtpb of a run gives the config of that run.
config::Config LoadConfig(const std::string& path, const std::vector<Setting>& settings);

// Sets more fields of a loaded config and checks it again. Errors name `path` as the file.
void ChangeConfig(config::Config& config, const std::vector<Setting>& settings,
                  const std::string& path);

// Reads a config.txtpb, or an output of ConfigText. Throws Error(kUsage) if it is not resolved.
config::Config ReadResolvedConfig(const std::string& path);

// Parses the output of ConfigText. Errors name `origin` as the file.
config::Config ParseConfigText(const std::string& text, const std::string& origin);

// Fills in values that depend on this machine and on other settings (workers, slices, threads,
// absolute data directory, optimizer defaults), so that the written result reproduces the run.
// `cores` is the number of usable cores. Throws Error(kUsage) if the data's directory is missing.
void ResolveConfig(config::Config& config, int cores);
// The same, but does not require the data.
void ResolveForMachine(config::Config& config, int cores);
// Whether the workers are programs that train their own model (worker.program).
bool HasProgram(const config::Config& config);
// Returns the config with every default spelled out.
config::Config WithDefaults(const config::Config& config);
// Returns a resolved config as text, with every default that has an effect spelled out.
std::string ConfigText(const config::Config& config);
// The number of cores that this process may use (affinity mask and cgroup quota).
int AvailableCores();

}  // namespace muster
