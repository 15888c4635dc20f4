#include "common/config/config.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "common/base/error.h"
#include "common/base/text.h"
#include "common/config/config_check.h"
#include "common/config/data_format.h"
#include "common/config/hardware.h"
#include "common/config/resolved.h"
#include "common/config/text_format.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

// Reads the network from model_file, relative to `directory`.
void IncludeModel(config::Config& config, const fs::path& directory, ConfigErrors& errors) {
  const std::string file = (directory / config.model_file()).string();
  config::Model model;
  const size_t before = errors.noted();
  try {
    ParseTextFile(file, "model", model, errors);
  } catch (const Error& error) {
    if (errors.noted() != before) throw;  // the collected errors
    const std::string named_at = errors.Where("model_file") + ": model_file: ";
    errors.AddUnread("model", (fs::exists(file) ? "" : named_at) + error.what());
  }
  *config.mutable_model() = std::move(model);
}

// A shell leaves ~ alone in --set KEY=~/DIR, and a file has no shell.
void ExpandHome(std::string& path) {
  const char* const home = std::getenv("HOME");
  if (path.starts_with("~/") && home != nullptr && *home != '\0') path.replace(0, 1, home);
}

// The last dense layer's `units` default to the number of classes, or to 1 for values.
void FillInUnits(config::Config& config) {
  if (!config.has_model() || config.model().layer_size() < 2) return;
  config::Layer& last = *config.mutable_model()->mutable_layer(config.model().layer_size() - 2);
  const int64_t classes = DataClasses(config.data());
  const bool has_values = HasValues(config.data());
  if (!last.has_dense() || last.dense().has_units() || (classes == 0 && !has_values)) return;
  last.mutable_dense()->set_units(has_values ? 1 : static_cast<uint32_t>(classes));
}

// Older versions wrote no `resolved`: their config.txtpb has every setting, and its own folder as
// run.dir, unless it was moved.
bool IsOfOlderVersion(const fs::path& path, const std::string& text, const config::Config& config) {
  if (config.has_resolved() || path.filename() != "config.txtpb") return false;
  std::error_code ignored;
  return (text.find(kWrittenByMuster) != std::string::npos &&
          text.find(kInNewDirectory) == std::string::npos) ||
         fs::equivalent(config.run().dir(), fs::absolute(path).parent_path(), ignored);
}

LoadedConfig Load(const std::string& path, const std::vector<Setting>& settings, bool to_launch,
                  bool has_file = true) {
  LoadedConfig loaded;
  config::Config& config = loaded.config;
  ConfigErrors errors(path);
  const std::string text = has_file ? ParseTextFile(path, "", config, errors) : "";
  if (IsOfOlderVersion(path, text, config)) {
    config::Config resolved;
    resolved.Swap(&config);
    config.mutable_resolved()->Swap(&resolved);
  }
  loaded.written = config;
  loaded.written.clear_resolved();
  if (to_launch && config.has_resolved()) ForgetPlace(settings, *config.mutable_resolved());
  MergeResolved(config, errors);
  fs::path directory = fs::path(path).parent_path();
  for (const Setting& setting : settings) {
    if (setting.path != "model_file") continue;
    SetField(config, setting, errors);
    directory.clear();
  }
  if (config.has_model_file()) IncludeModel(config, directory, errors);
  for (const Setting& setting : settings) {
    if (setting.path != "model_file") SetField(config, setting, errors);
  }
  if (config.data().has_dir()) ExpandHome(*config.mutable_data()->mutable_dir());
  if (config.run().has_dir()) ExpandHome(*config.mutable_run()->mutable_dir());
  if (config.run().has_initial_weights())
    ExpandHome(*config.mutable_run()->mutable_initial_weights());
  if (config.data().image_folder().has_exclude())
    ExpandHome(*config.mutable_data()->mutable_image_folder()->mutable_exclude());
  if (config.has_data()) ResolveFromFiles(*config.mutable_data());
  FillInUnits(config);
  CheckConfig(config, errors);
  loaded.removed = errors.removed;
  for (const Setting& setting : settings) {  // they have no mistakes
    if (!setting.path.starts_with("model")) SetField(loaded.written, setting, errors);
  }
  if (config.has_model()) *loaded.written.mutable_model() = config.model();
  // On the command line, --devices cpu overrides the backend of the file.
  const bool typed =
      std::ranges::find(settings, "worker.devices", &Setting::path) != settings.end();
  if (typed && ParseDevices(config.worker().devices()).kind == DeviceWish::Kind::kCpu) {
    config.mutable_worker()->clear_backend();
    loaded.written.mutable_worker()->clear_backend();
  }
  return loaded;
}

}  // namespace

bool HasProgram(const config::Config& config) { return config.worker().program_size() > 0; }

Setting ParseSetting(const std::string& text) {
  const size_t equals = text.find('=');
  std::string origin = "--set " + Shown(text);
  if (equals == std::string::npos || equals == 0) {
    throw Error(ExitCode::kUsage, "{}: expected path.to.key=value", origin);
  }
  return {text.substr(0, equals), text.substr(equals + 1), std::move(origin)};
}

config::Config LoadConfig(const std::string& path, const std::vector<Setting>& settings) {
  return Load(path, settings, false).config;
}

LoadedConfig LoadToLaunch(const std::string& path, const std::vector<Setting>& settings,
                          bool has_file) {
  return Load(path, settings, true, has_file);
}

void ChangeConfig(config::Config& config, const std::vector<Setting>& settings,
                  const std::string& path) {
  ConfigErrors errors(path);
  for (const Setting& setting : settings) SetField(config, setting, errors);
  CheckConfig(config, errors);
}

config::Config ReadResolvedConfig(const std::string& path) {
  config::Config config = LoadConfig(path, {});
  const bool resolved = config.cluster().has_workers() && config.run().has_slices() &&
                        config.worker().threads() > 0 && config.server().threads() > 0;
  if (resolved) return config;
  throw Error(ExitCode::kUsage,
              "{}: expected a resolved config from a run directory: start this process with "
              "`muster launch`, `muster server` or `muster worker`",
              path);
}

config::Config ParseConfigText(const std::string& text, const std::string& origin) {
  config::Config config;
  ConfigErrors errors(origin);
  const PlaceOfLine place = [&](int line) { return fmt::format("{}:{}", origin, line + 1); };
  ParseText(text, place, "", config, errors);
  MergeResolved(config, errors);
  CheckConfig(config, errors);
  return config;
}

}  // namespace muster
