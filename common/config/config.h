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

// Reads `path`, includes its model file, applies `settings`, looks up the classes of the data and
// checks every value. Throws
// Error(kUsage) with a line for each mistake: file, line, key, what was expected, what is there,
// nearest name. `removed`: gets the settings that were given but no longer exist, with their
// places.
config::Config LoadConfig(const std::string& path, const std::vector<Setting>& settings,
                          std::vector<std::string>* removed = nullptr);

// Sets more fields of a loaded config and checks it again. `path` stands for the file in errors.
void ChangeConfig(config::Config& config, const std::vector<Setting>& settings,
                  const std::string& path);

// Reads what WriteConfig wrote of a resolved config. Throws Error(kUsage) if it is not resolved.
config::Config ReadResolvedConfig(const std::string& path);

// Reads a text that ConfigText made. `origin` names it in errors.
config::Config ParseConfigText(const std::string& text, const std::string& origin);

// Fills in what depends on this machine and on other settings (workers, slices, threads, absolute
// data directory, the optimizer's defaults of its type), so that the text form of the result
// repeats the run. `cores` is what may be used. Throws Error(kUsage) where the data's directory is
// missing.
void ResolveConfig(config::Config& config, int cores);
// The same without asking for the data.
void ResolveForMachine(config::Config& config, int cores);
// The config with every default spelled out.
config::Config WithDefaults(const config::Config& config);
// `config`, resolved, as text with every default spelled out that means something.
std::string ConfigText(const config::Config& config);
// Writes that text. Atomic.
void WriteConfig(const config::Config& config, const std::string& path);

// The cores this process may use (affinity mask and cgroup quota).
int AvailableCores();

}  // namespace muster
