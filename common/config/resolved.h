// config.txtpb of a run: the settings that its user wrote, in the config and on the command line,
// and in `resolved` those that Muster computed, with every default. Both together are the config of
// the run. If somebody edits the file, what is written outside of `resolved` counts.
#pragma once

#include <string>
#include <vector>

#include "common/config/config.h"
#include "common/config/config_errors.h"
#include "proto/config.pb.h"

namespace muster {

// Begins the first line of config.txtpb.
inline constexpr const char* kWrittenByMuster = "# Written by muster launch";
// Ends it, since there is `resolved`.
inline constexpr const char* kInNewDirectory = "repeats the run in a new directory.\n";

// Returns the text of config.txtpb. `config`: of the run, resolved; all values are taken from it.
// `written` has the settings that the user wrote; run.dir counts as computed.
std::string RunConfigText(config::Config written, const config::Config& config);
void WriteRunConfig(const config::Config& written, const config::Config& config,
                    const std::string& path);

struct LoadedConfig {
  config::Config config;             // as LoadConfig returns it
  config::Config written;            // the settings in the file and of the user
  std::vector<std::string> removed;  // given settings that no longer exist, with their locations
};
// Like LoadConfig, for a new launch: of `resolved`, ForgetPlace is left out. Without a file, only
// the settings count, and `path` names the launch in errors.
LoadedConfig LoadToLaunch(const std::string& path, const std::vector<Setting>& settings,
                          bool has_file = true);

// Returns what the user wrote, according to a run's config.txtpb. Empty if the file has no
// `resolved`, as those of older versions, or cannot be read.
config::Config WrittenIn(const std::string& path);

// Removes what a launch with these settings decides again: the run's directory and, if it names
// GPUs, the CPU as a backend or as a replacement for a missing GPU.
void ForgetPlace(const std::vector<Setting>& settings, config::Config& resolved);

// Adds the settings in config.resolved to the others, and clears it.
void MergeResolved(config::Config& config, ConfigErrors& errors);

}  // namespace muster
