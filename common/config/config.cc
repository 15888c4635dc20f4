#include "common/config/config.h"

#include <google/protobuf/text_format.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "common/base/atomic_file.h"
#include "common/base/control_group.h"
#include "common/base/error.h"
#include "common/config/class_names.h"
#include "common/config/config_check.h"
#include "common/config/for_types.h"
#include "common/config/job_size.h"
#include "common/config/text_format.h"
#include "common/config/update_settings.h"

namespace muster {
namespace {

namespace fs = std::filesystem;
namespace pb = google::protobuf;

// Spells out the default of every plain field of the messages that are there.
void SpellOutDefaults(pb::Message& message) {
  const pb::Descriptor* type = message.GetDescriptor();
  const pb::Reflection* r = message.GetReflection();
  for (int f = 0; f < type->field_count(); ++f) {
    const pb::FieldDescriptor* field = type->field(f);
    if (field->message_type() != nullptr) {
      if (field->is_repeated()) {
        for (int i = 0; i < r->FieldSize(message, field); ++i) {
          SpellOutDefaults(*r->MutableRepeatedMessage(&message, field, i));
        }
      } else if (r->HasField(message, field)) {
        SpellOutDefaults(*r->MutableMessage(&message, field));
      }
      continue;
    }
    if (field->is_repeated() || r->HasField(message, field) || !field->has_default_value())
      continue;
    switch (field->cpp_type()) {
      case pb::FieldDescriptor::CPPTYPE_INT64:
        r->SetInt64(&message, field, field->default_value_int64());
        break;
      case pb::FieldDescriptor::CPPTYPE_UINT64:
        r->SetUInt64(&message, field, field->default_value_uint64());
        break;
      case pb::FieldDescriptor::CPPTYPE_UINT32:
        r->SetUInt32(&message, field, field->default_value_uint32());
        break;
      case pb::FieldDescriptor::CPPTYPE_FLOAT:
        r->SetFloat(&message, field, field->default_value_float());
        break;
      case pb::FieldDescriptor::CPPTYPE_DOUBLE:
        r->SetDouble(&message, field, field->default_value_double());
        break;
      case pb::FieldDescriptor::CPPTYPE_BOOL:
        r->SetBool(&message, field, field->default_value_bool());
        break;
      case pb::FieldDescriptor::CPPTYPE_ENUM:
        r->SetEnum(&message, field, field->default_value_enum());
        break;
      default:
        break;
    }
  }
}

// Defaults that would contradict another setting if they were spelled out.
void DropMeaningless(config::Config& config, const config::Config& original) {
  ClearForeign(config, "", [](const std::string&, const std::string&) { return true; });
  for (int i = 0; i < config.model().layer_size(); ++i) {
    config::Layer& layer = *config.mutable_model()->mutable_layer(i);
    const config::Layer& as_given = original.model().layer(i);
    if (layer.has_conv2d() && !as_given.conv2d().has_pad()) layer.mutable_conv2d()->clear_pad();
    if (layer.has_max_pool() && !as_given.max_pool().has_pad())
      layer.mutable_max_pool()->clear_pad();
    if (layer.has_avg_pool() && !as_given.avg_pool().has_pad())
      layer.mutable_avg_pool()->clear_pad();
  }
}

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
void ParseConfig(const std::string& path, config::Config& config, Locations& locations) {
  try {
    ParseTextFile(path, "", config, locations);
  } catch (const Error&) {
    config::Model model;
    Locations ignored;
    try {
      ParseTextFile(path, "model", model, ignored);
    } catch (const Error&) {
      model.Clear();
    }
    if (model.layer_size() == 0) throw;
    throw Error(
        ExitCode::kUsage,
        "{}: is a network, expected a config (configs/*.txtpb), which names its network with "
        "model_file: \"{}\"",
        path, path);
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
  ParseConfig(path, config, locations);
  bool file_from_setting = false;
  for (const Setting& setting : settings) {
    if (setting.path != "model_file") continue;
    SetField(config, setting.path, setting.value, setting.origin, locations);
    file_from_setting = true;
  }
  if (config.has_model_file()) {
    const fs::path beside = file_from_setting ? fs::path() : fs::path(path).parent_path();
    const std::string file = (beside / config.model_file()).string();
    config::Model model;
    try {
      ParseTextFile(file, "model", model, locations);
    } catch (const Error& error) {
      if (!fs::exists(file)) {
        throw Error(ExitCode::kUsage, "{}: model_file: {}", locations["model_file"], error.what());
      }
      throw;
    }
    *config.mutable_model() = std::move(model);
  }
  for (const Setting& setting : settings) {
    if (setting.path == "model_file") continue;
    SetField(config, setting.path, setting.value, setting.origin, locations);
  }
  DropOverridden(config, locations);
  CheckConfig(config, path, locations);
  return config;
}

config::Config ParseConfigText(const std::string& text, const std::string& origin) {
  config::Config config;
  Locations locations;
  ParseText(text, origin, "", config, locations);
  CheckConfig(config, origin, locations);
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

void ResolveConfig(config::Config& config, int cores) {
  if (NeedsFiles(config.data()) && config.data().dir().empty()) {
    const bool cifar10 = config.data().format() == config::Data::CIFAR10;
    throw Error(ExitCode::kUsage,
                "data.dir: missing: give the data's directory with --data DIR ({}; data.format "
                "SYNTHETIC needs no files)",
                cifar10
                    ? "`muster data get cifar10 DIR` downloads CIFAR-10, `muster data synth DIR` "
                      "makes a procedural set"
                    : "that of MNIST's four files, train-images-idx3-ubyte(.gz) and so on");
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
  if (!checkpoint.save_to().empty()) {
    checkpoint.set_save_to(fs::absolute(checkpoint.save_to()).lexically_normal().string());
  }
  if (config.server().threads() == 0) {
    config.mutable_server()->set_threads(static_cast<uint32_t>(std::clamp(cores, 1, 4)));
  }
  if (config.server().io_threads() == 0) {
    const auto most = std::min(config.cluster().workers(), 8u);
    config.mutable_server()->set_io_threads(std::clamp(static_cast<uint32_t>(cores) / 4, 1u, most));
  }
}

std::string ConfigText(const config::Config& config) {
  config::Config full = config;
  full.mutable_run();
  full.mutable_cluster();
  full.mutable_data()->mutable_preprocess();
  if (full.data().format() == config::Data::SYNTHETIC) full.mutable_data()->mutable_synthetic();
  if (full.data().format() == config::Data::MNIST) full.mutable_data()->mutable_mnist();
  full.mutable_optimizer();
  full.mutable_evaluation();
  full.mutable_server();
  full.mutable_worker();
  full.mutable_deadlines();
  full.mutable_checkpoint();
  SpellOutDefaults(full);
  DropMeaningless(full, config);
  std::string text;
  pb::TextFormat::Printer printer;
  printer.SetUseShortRepeatedPrimitives(true);
  printer.SetUseUtf8StringEscaping(true);
  MUSTER_CHECK(printer.PrintToString(full, &text));
  return text;
}

void WriteConfig(const config::Config& config, const std::string& path) {
  WriteFileAtomically(path,
                      "# Written by muster launch; launching from this file repeats the run.\n" +
                          ConfigText(config));
}

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

int AvailableCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int cores = 1;
  if (sched_getaffinity(0, sizeof set, &set) == 0) cores = std::max(1, CPU_COUNT(&set));
  const double quota = std::max(1.0, std::floor(ReadControlGroupLimits().cores));
  return quota < cores ? static_cast<int>(quota) : cores;
}

}  // namespace muster
