#include "common/model/model_metadata.h"

#include <fmt/core.h>

#include <charconv>

#include "common/base/error.h"
#include "common/base/json.h"
#include "common/base/text.h"
#include "common/base/version.h"
#include "common/config/config.h"
#include "common/config/data_format.h"
#include "common/model/feature_order.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

using nlohmann::ordered_json;

bool Normalizes(const config::Preprocess& settings) {
  return settings.mean_size() > 0 || settings.stddev_size() > 0;
}

void AddNormalization(const config::Preprocess& settings, size_t channels, ordered_json& steps) {
  if (!Normalizes(settings)) return;
  std::vector<double> mean(settings.mean().begin(), settings.mean().end());
  std::vector<double> stddev(settings.stddev().begin(), settings.stddev().end());
  mean.resize(channels, 0);
  stddev.resize(channels, 1);
  steps.push_back({{"subtract", mean}});
  steps.push_back({{"divide", stddev}});
}

// Describes the preprocessing of photos in evaluations.
ordered_json PhotoPreprocessing(const config::Data& data) {
  const config::Preprocess& settings = data.preprocess();
  ordered_json steps = ordered_json::array();
  if (const int64_t side = ShorterSide(settings); side > 0) {
    steps.push_back({{"resize_shorter_side", side}, {"filter", "bilinear, antialiased"}});
  }
  steps.push_back({{"center_crop", {settings.crop_height(), settings.crop_width()}}});
  steps.push_back({{"divide", 255}});
  AddNormalization(settings, data.image_folder().channels(), steps);
  return steps;
}

// Describes the deterministic preprocessing of an image, as in evaluations.
ordered_json Preprocessing(const config::Data& data) {
  if (data.format() == config::Data::IMAGE_FOLDER) return PhotoPreprocessing(data);
  const Shape stored = StoredShape(data), input = InputShape(data);
  ordered_json steps = ordered_json::array();
  if (data.preprocess().has_crop_height()) {
    steps.push_back(
        {{"center_crop", {input.height, input.width}}, {"of", {stored.height, stored.width}}});
  }
  const bool is_npz = data.format() == config::Data::NPZ;
  const bool are_floats = is_npz && data.npz().type() == config::NpzData::FLOAT32;
  if (data.preprocess().standardize() && !are_floats) {
    steps.push_back({{"standardize",
                      "(x - mean) / max(stddev, 1/sqrt(n)), over the n values of the "
                      "image; stddev divides by n"}});
  } else if (Normalizes(data.preprocess())) {
    AddNormalization(data.preprocess(), stored.channels, steps);
  } else if (!are_floats) {
    steps.push_back({{"divide", 255}});
  }
  return steps;
}

const std::string* Find(const Metadata& metadata, const std::string& key) {
  const auto found = metadata.find(key);
  return found == metadata.end() ? nullptr : &found->second;
}

template <typename Number>
std::optional<Number> NumberIn(const Metadata& metadata, const std::string& key) {
  const std::string* const text = Find(metadata, key);
  Number number = 0;
  if (text == nullptr) return std::nullopt;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), number);
  if (error != std::errc() || end != text->data() + text->size()) return std::nullopt;
  return number;
}

}  // namespace

Metadata ModelMetadata(const config::Config& config, const Graph& graph, const ModelInfo& info) {
  Metadata metadata{
      {"format", "pt"},  // expected by PyTorch's loaders
      {"muster_version", kVersion},
      {"config", ConfigText(config)},
      {"step", std::to_string(info.step)},
      {"weights", info.average ? "average" : "raw"},
      {"weights_hash", fmt::format("{:016x}", info.weights_hash)},
  };
  if (!graph.layers().empty()) {
    metadata["model"] = config.model().name();
    const Shape& input = graph.input_shape();
    metadata["input"] = JsonText(ordered_json{input.channels, input.height, input.width});
    metadata["preprocessing"] = JsonText(Preprocessing(config.data()));
    metadata["flatten"] = FeatureOrders(graph).flattens_channels_first() ? "CHW" : "HWC";
  }
  const std::vector<std::string> names = NamesOfClasses(config.data());
  if (!names.empty()) metadata["class_names"] = JsonText(ordered_json(names));
  const auto put = [&](const char* key, const std::optional<double>& value) {
    if (value) metadata[key] = fmt::format("{}", *value);
  };
  put("validation_accuracy", info.validation_accuracy);
  put("validation_loss", info.validation_loss);
  put("test_accuracy", info.test_accuracy);
  put("test_loss", info.test_loss);
  return metadata;
}

std::optional<config::Config> ConfigOf(const Metadata& metadata, const std::string& file) {
  const std::string* const text = Find(metadata, "config");
  if (text == nullptr) return std::nullopt;
  const std::string* const version = Find(metadata, "muster_version");
  try {
    return ParseConfigText(*text, file + " (config)");
  } catch (const Error& error) {
    if (version == nullptr || *version == kVersion) throw;
    throw Error(error.code(), "{}; it was written by Muster {}, but this is {}", error.what(),
                Shown(*version), kVersion);
  }
}

bool IsAverage(const Metadata& metadata) {
  const std::string* const text = Find(metadata, "weights");
  return text != nullptr && *text == "average";
}

std::optional<int64_t> StepOf(const Metadata& metadata) {
  return NumberIn<int64_t>(metadata, "step");
}

std::optional<double> AccuracyOf(const Metadata& metadata, const std::string& set) {
  return NumberIn<double>(metadata, set + "_accuracy");
}

std::optional<double> LossOf(const Metadata& metadata, const std::string& set) {
  return NumberIn<double>(metadata, set + "_loss");
}

}  // namespace muster
