#include "common/config/config.h"

#include <filesystem>
#include <utility>

#include "common/base/error.h"
#include "common/base/utf8.h"
#include "common/config/config_check.h"
#include "common/config/set_field.h"
#include "common/config/text_format.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

// Reads the network from its file, beside `directory`.
void IncludeModel(config::Config& config, const fs::path& directory, ConfigErrors& errors) {
  const std::string file = (directory / config.model_file()).string();
  config::Model model;
  const size_t before = errors.noted();
  try {
    ParseTextFile(file, "model", model, errors);
  } catch (const Error& error) {
    if (errors.noted() != before) throw;  // with all of them
    const std::string named_at = errors.Where("model_file") + ": model_file: ";
    errors.AddUnread("model", (fs::exists(file) ? "" : named_at) + error.what());
  }
  *config.mutable_model() = std::move(model);
}

}  // namespace

Setting ParseSetting(const std::string& text) {
  const size_t equals = text.find('=');
  std::string origin = "--set " + Shown(text);
  if (equals == std::string::npos || equals == 0) {
    throw Error(ExitCode::kUsage, "{}: expected path.to.key=value", origin);
  }
  return {text.substr(0, equals), text.substr(equals + 1), std::move(origin)};
}

config::Config LoadConfig(const std::string& path, const std::vector<Setting>& settings,
                          std::vector<std::string>* removed) {
  config::Config config;
  ConfigErrors errors(path);
  ParseTextFile(path, "", config, errors);
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
  CheckConfig(config, errors);
  if (removed != nullptr) *removed = errors.removed;
  return config;
}

config::Config ParseConfigText(const std::string& text, const std::string& origin) {
  config::Config config;
  ConfigErrors errors(origin);
  const PlaceOfLine place = [&](int line) { return fmt::format("{}:{}", origin, line + 1); };
  ParseText(text, place, "", config, errors);
  CheckConfig(config, errors);
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

bool NeedsFiles(const config::Data& data) { return data.format() != config::Data::SYNTHETIC; }

Shape StoredShape(const config::Data& data) {
  switch (data.format()) {
    case config::Data::CIFAR10:
      return {32, 32, 3};
    case config::Data::SYNTHETIC:
      return {data.synthetic().height(), data.synthetic().width(), data.synthetic().channels()};
    case config::Data::MNIST:
      return {data.mnist().image_height(), data.mnist().image_width(), 1};
  }
  MUSTER_CHECK(false);
  return {};
}

Shape InputShape(const config::Data& data) {
  Shape shape = StoredShape(data);
  if (data.preprocess().has_crop_height()) {
    shape.height = data.preprocess().crop_height();
    shape.width = data.preprocess().crop_width();
  }
  return shape;
}

int64_t DataClasses(const config::Data& data) {
  switch (data.format()) {
    case config::Data::CIFAR10:
    case config::Data::MNIST:
      return 10;
    case config::Data::SYNTHETIC:
      return data.synthetic().classes();
  }
  MUSTER_CHECK(false);
  return 0;
}

}  // namespace muster
