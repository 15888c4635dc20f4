#include "common/config/config.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "common/base/control_group.h"
#include "common/base/error.h"
#include "common/config/class_names.h"
#include "common/config/config_check.h"
#include "common/config/for_types.h"
#include "common/config/job_size.h"
#include "common/config/set_field.h"
#include "common/config/text_format.h"
#include "common/config/update_settings.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

// A type chosen on the command line makes settings of the file that belong to another type void:
// --set optimizer.type=SGD is enough, although the file has a momentum.
void DropOverridden(config::Config& config, const Locations& locations) {
  const auto from_command_line = [&](const std::string& key) {
    const auto found = locations.find(key);
    return found != locations.end() && found->second.starts_with("--");
  };
  if (from_command_line("data.format")) {
    if (config.data().format() != config::Data::SYNTHETIC) config.mutable_data()->clear_synthetic();
    if (config.data().format() != config::Data::MNIST) config.mutable_data()->clear_mnist();
  }
  ClearForeign(config, "", [&](const std::string& key, const std::string& type_key) {
    return from_command_line(type_key) && !from_command_line(key) &&
           !from_command_line(key + "[0]");
  });
}

// A network's file is easily taken for a config.
void RefuseNetwork(const std::string& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return;  // a pipe is read once
  config::Model model;
  Locations ignored;
  ConfigErrors errors;
  try {
    ParseTextFile(path, "model", model, ignored, errors);
  } catch (const Error&) {
    return;
  }
  if (!errors.empty() || model.layer_size() == 0) return;
  throw Error(ExitCode::kUsage,
              "{}: is a network, expected a config (configs/*.txtpb), which names its network with "
              "model_file: \"{}\"",
              path, path);
}

void ParseConfig(const std::string& path, config::Config& config, Locations& locations,
                 ConfigErrors& errors) {
  try {
    ParseTextFile(path, "", config, locations, errors);
  } catch (const Error&) {
    RefuseNetwork(path);
    throw;
  }
  if (!errors.empty()) RefuseNetwork(path);
}

void Set(config::Config& config, const Setting& setting, Locations& locations,
         ConfigErrors& errors) {
  try {
    SetField(config, setting.path, setting.value, setting.origin, locations);
  } catch (const Error& error) {
    errors.AddUnread(setting.path, error.what());
  }
}

}  // namespace

Setting ParseSetting(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    throw Error(ExitCode::kUsage, "--set {}: expected path.to.key=value", text);
  }
  return {text.substr(0, equals), text.substr(equals + 1), "--set " + text};
}

config::Config LoadConfig(const std::string& path, const std::vector<Setting>& settings) {
  config::Config config;
  Locations locations;
  ConfigErrors errors;
  ParseConfig(path, config, locations, errors);
  bool file_from_setting = false;
  for (const Setting& setting : settings) {
    if (setting.path != "model_file") continue;
    Set(config, setting, locations, errors);
    file_from_setting = true;
  }
  if (config.has_model_file()) {
    const fs::path beside = file_from_setting ? fs::path() : fs::path(path).parent_path();
    const std::string file = (beside / config.model_file()).string();
    config::Model model;
    const size_t before = errors.noted();
    try {
      ParseTextFile(file, "model", model, locations, errors);
    } catch (const Error& error) {
      if (errors.noted() != before) throw;  // with all of them
      const bool missing = !fs::exists(file);
      errors.AddUnread("model", missing ? fmt::format("{}: model_file: {}", locations["model_file"],
                                                      error.what())
                                        : error.what());
    }
    *config.mutable_model() = std::move(model);
  }
  for (const Setting& setting : settings) {
    if (setting.path == "model_file") continue;
    Set(config, setting, locations, errors);
  }
  DropOverridden(config, locations);
  CheckConfig(config, path, locations, errors);
  return config;
}

config::Config ParseConfigText(const std::string& text, const std::string& origin) {
  config::Config config;
  Locations locations;
  ConfigErrors errors;
  ParseText(text, origin, "", config, locations, errors);
  CheckConfig(config, origin, locations, errors);
  return config;
}

BatchSizes ResolveBatch(const config::Config& config) {
  const int64_t workers = config.cluster().workers();
  if (config.run().has_global_batch()) {
    const int64_t global = config.run().global_batch();
    return {global, static_cast<double>(global) / static_cast<double>(workers)};
  }
  const int64_t each = config.run().batch_per_worker();
  return {each * workers, static_cast<double>(each)};
}

StepPlan PlanSteps(const config::Config& config, int64_t train_samples) {
  StepPlan plan{.train_samples = train_samples,
                .global_batch = ResolveBatch(config).global_batch,
                .slices = config.run().slices()};
  plan.total_steps = config.run().has_steps() ? config.run().steps()
                                              : config.run().epochs() * plan.StepsPerEpoch();
  return plan;
}

void ResolveConfig(config::Config& config, int cores) {
  if (NeedsFiles(config.data()) && config.data().dir().empty()) {
    const bool cifar10 = config.data().format() == config::Data::CIFAR10;
    throw Error(ExitCode::kUsage,
                "data.dir: missing: give the data's directory with --data DIR ({}; data.format "
                "SYNTHETIC needs no files)",
                cifar10
                    ? "`muster data get cifar10 DIR` downloads CIFAR-10, `muster data synth DIR` "
                      "makes a procedural set"
                    : "`muster data get mnist DIR` downloads MNIST");
  }
  ResolveForMachine(config, cores);
}

void ResolveForMachine(config::Config& config, int cores) {
  const auto absolute = [](const std::string& path) {
    return fs::absolute(path).lexically_normal().string();
  };
  config::Data& data = *config.mutable_data();
  config::Run& run = *config.mutable_run();
  if (!data.dir().empty()) data.set_dir(absolute(data.dir()));
  if (!run.trace_file().empty()) run.set_trace_file(absolute(run.trace_file()));
  if (!run.initial_weights().empty()) run.set_initial_weights(absolute(run.initial_weights()));
  ResolveClassNames(data);
  ResolveJobSize(config, cores);
  ResolveOptimizer(*config.mutable_optimizer());
  config::Checkpoint& checkpoint = *config.mutable_checkpoint();
  if (checkpoint.every_case() == config::Checkpoint::EVERY_NOT_SET) checkpoint.set_every_epochs(1);
  if (config.server().threads() == 0) {
    config.mutable_server()->set_threads(static_cast<uint32_t>(std::clamp(cores, 1, 4)));
  }
  const bool zmq = config.cluster().transport() != config::Cluster::LOCAL;
  if (zmq && config.server().io_threads() == 0) {
    const auto most = std::min(config.cluster().workers(), 8u);
    config.mutable_server()->set_io_threads(std::clamp(static_cast<uint32_t>(cores) / 4, 1u, most));
  }
}

int AvailableCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int cores = 1;
  if (sched_getaffinity(0, sizeof set, &set) == 0) cores = std::max(1, CPU_COUNT(&set));
  const double quota = std::max(1.0, std::floor(ReadControlGroupLimits().cores));
  return quota < cores ? static_cast<int>(quota) : cores;
}

}  // namespace muster
