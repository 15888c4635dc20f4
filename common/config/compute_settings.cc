#include "common/config/compute_settings.h"

#include <fmt/core.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

#include "proto/config.pb.h"

namespace muster {
namespace {

namespace pb = google::protobuf;

std::string ValueText(const pb::Message& message, const pb::FieldDescriptor* field, int index) {
  std::string text;
  pb::TextFormat::PrintFieldValueToString(message, field, index, &text);
  return text;
}

bool IsAtDefault(const pb::Message& message, const pb::FieldDescriptor* field) {
  const std::unique_ptr<pb::Message> untouched(message.New());
  return field->message_type() == nullptr && !field->is_repeated() &&
         ValueText(message, field, -1) == ValueText(*untouched, field, -1);
}

// Adds every scalar field below `message` whose value differs from its default.
void Flatten(const pb::Message& message, const std::string& path, std::vector<std::string>& lines) {
  std::vector<const pb::FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  for (const pb::FieldDescriptor* field : fields) {
    const std::string here = path + "." + field->name();
    const int count = field->is_repeated() ? message.GetReflection()->FieldSize(message, field) : 1;
    for (int i = 0; i < count; ++i) {
      const std::string name = field->is_repeated() ? fmt::format("{}[{}]", here, i) : here;
      if (field->message_type() == config::Variable::descriptor())
        continue;  // only the server uses these
      if (field->message_type() != nullptr) {
        const pb::Reflection* r = message.GetReflection();
        Flatten(field->is_repeated() ? r->GetRepeatedMessage(message, field, i)
                                     : r->GetMessage(message, field),
                name, lines);
      } else if (!IsAtDefault(message, field)) {
        lines.push_back(name + ": " + ValueText(message, field, field->is_repeated() ? i : -1));
      }
    }
  }
}

void AddLayer(const config::Layer& layer, std::vector<std::string>& lines) {
  if (layer.has_conv2d() || layer.has_dense() || layer.has_max_pool() || layer.has_avg_pool()) {
    return;
  }
  config::Layer kind = layer;
  kind.clear_name();
  kind.clear_input();
  Flatten(kind, fmt::format("model.layer[{}]", layer.name()), lines);
}

std::map<std::string_view, std::string_view> ByPath(const std::vector<std::string>& lines) {
  std::map<std::string_view, std::string_view> values;
  for (const std::string_view line : lines) {
    const size_t colon = line.find(": ");
    if (colon == std::string_view::npos) continue;
    values[line.substr(0, colon)] = line.substr(colon + 2);
  }
  return values;
}

}  // namespace

std::vector<std::string> ComputeSettings(const config::Config& config) {
  std::vector<std::string> lines;
  lines.push_back(fmt::format("run.seed: {}", config.run().seed()));
  config::Data data;
  data.set_format(config.data().format());
  *data.mutable_preprocess() = config.data().preprocess();
  *data.mutable_class_weights() = config.data().class_weights();
  if (config.data().format() == config::Data::SYNTHETIC) {
    *data.mutable_synthetic() = config.data().synthetic();
  }
  lines.push_back("data.format: " + config::Data::Format_Name(data.format()));
  data.clear_format();
  Flatten(data, "data", lines);
  config::Worker worker;
  if (config.worker().has_convolution()) worker.set_convolution(config.worker().convolution());
  if (config.worker().has_backend()) worker.set_backend(config.worker().backend());
  if (config.worker().has_precision()) worker.set_precision(config.worker().precision());
  Flatten(worker, "worker", lines);
  if (config.evaluation().flip()) lines.push_back("evaluation.flip: true");
  for (const config::Layer& layer : config.model().layer()) AddLayer(layer, lines);
  std::sort(lines.begin(), lines.end());
  return lines;
}

std::optional<std::string> FirstDifference(const std::vector<std::string>& server,
                                           const std::vector<std::string>& worker) {
  if (server == worker) return std::nullopt;
  const auto ours = ByPath(server), theirs = ByPath(worker);
  const auto value = [](const auto& values, std::string_view path) {
    const auto found = values.find(path);
    return found == values.end() ? std::string("at its default") : std::string(found->second);
  };
  const auto compare = [&](std::string_view path) -> std::optional<std::string> {
    const std::string here = value(ours, path), there = value(theirs, path);
    if (here == there) return std::nullopt;
    return fmt::format("{} is {} on the server and {} on the worker", path, here, there);
  };
  for (const auto* values : {&ours, &theirs}) {
    for (const auto& [path, ignored] : *values) {
      if (auto difference = compare(path)) return difference;
    }
  }
  return "a setting is not of the form \"path: value\"";
}

}  // namespace muster
