#include "cli/model/inspect_model.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "cli/text/measure.h"
#include "cli/text/text_table.h"
#include "cli/text/units.h"
#include "cli/view/run_reader.h"
#include "common/base/error.h"
#include "common/base/text.h"
#include "common/checkpoint/early_stop.h"
#include "common/checkpoint/list_checkpoints.h"
#include "common/config/build_graph.h"
#include "common/config/config.h"
#include "common/config/data_format.h"
#include "common/model/load_weights.h"
#include "common/model/model_metadata.h"
#include "common/model/torch_tensors.h"
#include "proto/config.pb.h"

namespace muster {

namespace {

namespace fs = std::filesystem;

struct Statistics {
  double squares = 0, least = INFINITY, most = -INFINITY;
  int64_t nonfinite = 0;
};

void Add(std::span<const float> values, Statistics& result) {
  for (const float x : values) {
    if (!std::isfinite(x)) {
      ++result.nonfinite;
      continue;
    }
    result.squares += double{x} * x;
    result.least = std::min<double>(result.least, x);
    result.most = std::max<double>(result.most, x);
  }
}

// Reads a tensor of floats in blocks, because it may not fit into memory.
Statistics StatisticsOf(const SafetensorsReader& model, const StoredTensor& tensor) {
  constexpr uint64_t kBlock = 1 << 20;
  Statistics result;
  std::vector<float> values;
  for (uint64_t from = 0; from < tensor.elements(); from += kBlock) {
    values.resize(std::min(kBlock, tensor.elements() - from));
    model.ReadSomeFloats(tensor, from, values);
    Add(values, result);
  }
  return result;
}

// "3 of conv1.weight"
std::string NonfiniteText(int64_t count, const StoredTensor& tensor) {
  return FormatCount(count) + " of " + Shown(tensor.name);
}

// The variables with their own learning rates, by their names in the file.
std::map<std::string, float> LearningRates(const Metadata& metadata, const std::string& path) {
  std::map<std::string, float> rates;
  try {
    const auto config = ConfigOf(metadata, path);
    if (!config) return rates;
    const Graph graph = BuildGraph(config->model(), InputShape(config->data()));
    const TorchTensors torch(graph);
    for (const TorchTensor& tensor : torch.tensors()) {
      const Variable& variable = graph.variables()[static_cast<size_t>(tensor.variable())];
      if (variable.learning_rate_multiplier != 1) {
        rates[tensor.name()] = variable.learning_rate_multiplier;
      }
    }
  } catch (const Error&) {
    // Another version may have written the config. Show the rest anyway.
  }
  return rates;
}

std::string LearnsText(const std::map<std::string, float>& rates, const std::string& name) {
  const auto found = rates.find(name);
  if (found == rates.end()) return "";
  return found->second == 0 ? "frozen" : fmt::format("rate x {:g}", found->second);
}

// Describes a file: its variables with types, shapes, norms and extremes, its metadata, and tensors
// with non-finite numbers. Reads the whole file.
class Report {
 public:
  Report(const SafetensorsReader& model, const std::string& shown)
      : model_(model),
        shown_(shown),
        rates_(LearningRates(model.header().metadata, model.path())) {}

  std::vector<std::string> Lines(int width) {
    TextTable table({{"variable"},
                     {"type", false, 4},
                     {"shape"},
                     {"numbers", true, 3},
                     {"norm", true},
                     {"least", true, 2},
                     {"most", true, 2},
                     {"", false, 1}});
    for (const StoredTensor& tensor : model_.header().tensors) table.AddRow(RowOf(tensor));
    table.AddRule();
    table.AddRow({"total", "", "", FormatCount(static_cast<int64_t>(elements_)),
                  fmt::format("{:.4g}", std::sqrt(squares_)), "", "", ""});
    std::vector<std::string> lines{shown_, ""};
    for (std::string& line : table.Lines(width)) lines.push_back(std::move(line));
    lines.push_back("");
    for (const auto& [key, value] : model_.header().metadata) lines.push_back(RowOf(key, value));
    lines.push_back(fmt::format("  {:<16} {}", "not finite",
                                nonfinite_.empty() ? "none" : Join(nonfinite_, ", ")));
    return lines;
  }

 private:
  std::vector<std::string> RowOf(const StoredTensor& tensor) {
    std::vector<std::string> row{Shown(tensor.name), Name(tensor.type), tensor.ShapeString(),
                                 FormatCount(static_cast<int64_t>(tensor.elements()))};
    elements_ += tensor.elements();
    const auto number = [](double x) { return fmt::format("{:.4g}", x); };
    if (tensor.type == TensorType::kI64 && tensor.elements() == 1) {
      int64_t value = 0;
      model_.ReadIntegers(tensor, {&value, 1});
      row.insert(row.end(), {"", "", FormatCount(value), ""});
    } else if (SafetensorsReader::IsFloat(tensor.type) && tensor.elements() > 0) {
      const Statistics statistics = StatisticsOf(model_, tensor);
      squares_ += statistics.squares;
      std::string remark = LearnsText(rates_, tensor.name);
      if (statistics.nonfinite > 0) {
        remark += fmt::format("{}{} not finite", remark.empty() ? "" : ", ",
                              FormatCount(statistics.nonfinite));
        nonfinite_.push_back(NonfiniteText(statistics.nonfinite, tensor));
      }
      row.insert(row.end(), {number(std::sqrt(statistics.squares)), number(statistics.least),
                             number(statistics.most), remark});
    } else {
      row.insert(row.end(), {"", "", "", ""});
    }
    return row;
  }

  std::string RowOf(const std::string& key, const std::string& value) const {
    const std::string shown =
        key == "config" ? fmt::format("to show it: muster inspect {} --config", ShellWord(shown_))
                        : Shown(value);
    return fmt::format("  {:<16} {}", Shown(key), shown);
  }

  const SafetensorsReader& model_;
  const std::string shown_;
  const std::map<std::string, float> rates_;
  uint64_t elements_ = 0;
  double squares_ = 0;
  std::vector<std::string> nonfinite_;
};

std::string KeyRow(const std::string& key, const std::string& value) {
  return fmt::format("  {:<16} {}", key, Shown(value));
}

std::string AccuracyText(const std::optional<double>& validation,
                         const std::optional<double>& test) {
  std::string text;
  if (validation) text += ", " + Measure{.on_validation = true}.Named(*validation);
  if (test) text += ", " + Measure{}.Named(*test);
  return text;
}

std::string FileText(const std::string& path) {
  try {
    const SafetensorsReader file(path);
    RequireWhole(file);
    const Metadata& metadata = file.header().metadata;
    const auto step = StepOf(metadata);
    return fmt::format(
        "{}{}{}", step ? "step " + FormatCount(*step) : "unknown step",
        IsAverage(metadata) ? ", the moving average" : "",
        AccuracyText(AccuracyOf(metadata, "validation"), AccuracyOf(metadata, "test")));
  } catch (const Error& error) {
    return fmt::format("unusable: {}", error.what());
  }
}

// Describes the directory of a run, in a few lines.
std::vector<std::string> RunLines(const std::string& run_dir) {
  std::vector<std::string> lines{run_dir};
  if (const auto run = ReadRunIfThere(run_dir)) {
    std::string text = StateName(run->state);
    if (run->steps) text += ", " + Plural(*run->steps, "step");
    if (run->total_steps && run->total_steps != run->steps) {
      text += " of " + FormatCount(*run->total_steps);
    }
    text += AccuracyText(run->latest.validation.accuracy, run->latest.test.accuracy);
    lines.push_back(KeyRow("run", text));
  }
  std::error_code ignored;
  for (const char* const name : kModelFiles) {
    const std::string path = run_dir + "/" + name;
    if (fs::exists(path, ignored))
      lines.push_back(KeyRow("weights", fmt::format("{}: {}", name, FileText(path))));
  }
  for (const CheckpointName& name : ListCheckpoints(run_dir)) {
    lines.push_back(KeyRow("checkpoint", "checkpoints/" + name.Text()));
  }
  lines.emplace_back();
  return lines;
}

bool HasWeights(const std::string& run_dir) {
  std::error_code ignored;
  return fs::exists(run_dir + "/model.safetensors", ignored) || !ListCheckpoints(run_dir).empty();
}

void Append(std::vector<std::string>& lines, std::vector<std::string> more) {
  for (std::string& line : more) lines.push_back(std::move(line));
}

std::string EvaluatedText(const checkpoint::Plan& plan) {
  std::string text;
  if (plan.validation_samples() > 0) {
    text = Plural(plan.validation_samples(), "validation sample") + " and ";
  }
  return text + Plural(plan.test_samples(), "test sample");
}

// Describes the state of a checkpoint whose tensors have been verified.
std::vector<std::string> StateLines(const checkpoint::State& state) {
  std::vector<std::string> lines{
      KeyRow("written", fmt::format("{} by version {}", state.time(), state.muster_version())),
      KeyRow("step",
             fmt::format("{} of {}, {} of the weights{}", FormatCount(state.step()),
                         FormatCount(state.plan().total_steps()), Plural(state.updates(), "update"),
                         state.evaluated() ? ", evaluated" : "")),
      KeyRow("plan",
             fmt::format("global batch {}, {}, {} and {}", FormatCount(state.plan().global_batch()),
                         Plural(state.plan().slices(), "slice"),
                         Plural(state.plan().train_samples(), "training sample"),
                         EvaluatedText(state.plan()))),
      KeyRow("computed with", Join(state.arithmetic().worker(), "; ")),
      KeyRow("checksums", "correct")};
  if (!state.weights_hash().empty()) lines.push_back(KeyRow("weights hash", state.weights_hash()));
  const auto add = [&](const checkpoint::Evaluated& last) {
    std::string text = fmt::format("at step {}: ", FormatCount(last.step()));
    if (!IsByLoss(last)) {
      text += Measure{last.validation(), false}.Named(last.accuracy()) + ", ";
    }
    lines.push_back(
        KeyRow("evaluation", text + Measure{last.validation(), true}.Named(last.loss())));
  };
  if (state.progress().has_last_evaluation()) add(state.progress().last_evaluation());
  if (state.progress().has_test()) add(state.progress().test());
  return lines;
}

bool IsChosen(const ModelChoice& choice) {
  return choice.average || choice.raw || choice.best || choice.last;
}

std::string WithoutSlash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

std::vector<std::string> CheckpointLines(const std::string& folder, int width) {
  const CheckpointReader checkpoint(folder);
  checkpoint.Verify();
  std::vector<std::string> lines =
      Report(SafetensorsReader(folder + "/" + std::string(kTensorFile)), folder).Lines(width);
  Append(lines, StateLines(checkpoint.state()));
  return lines;
}

}  // namespace

std::vector<std::string> NonfiniteTensors(const SafetensorsReader& model) {
  std::vector<std::string> texts;
  for (const StoredTensor& tensor : model.header().tensors) {
    if (!SafetensorsReader::IsFloat(tensor.type)) continue;
    const int64_t count = StatisticsOf(model, tensor).nonfinite;
    if (count > 0) texts.push_back(NonfiniteText(count, tensor));
  }
  return texts;
}

Inspected InspectSource(const std::string& as_given, const ModelChoice& choice, int width) {
  const std::string from = WithoutSlash(as_given);
  if (IsCheckpoint(from) && !IsChosen(choice)) return {.lines = CheckpointLines(from, width)};
  std::error_code ignored;
  Inspected result;
  std::vector<std::string>& lines = result.lines;
  if (fs::is_directory(from, ignored) && !IsCheckpoint(from)) {
    if (IsRunDir(from) || !ListCheckpoints(from).empty()) lines = RunLines(from);
    if (lines.size() > 1 && !HasWeights(from) && !IsChosen(choice)) {
      lines.back() = KeyRow("weights", "none yet");
      return result;
    }
  }
  try {
    const OpenedModel model = OpenModel(from, choice);
    Append(lines, Report(model.file, model.shown).Lines(width));
  } catch (const Error& error) {
    if (lines.empty()) throw;
    lines.pop_back();  // the empty line before the weights
    result.trouble = error;
  }
  return result;
}

std::string ConfigTextIn(const std::string& as_given, const ModelChoice& choice) {
  const std::string from = WithoutSlash(as_given);
  if (IsCheckpoint(from) && !IsChosen(choice)) return ReadCheckpointState(from).config();
  const OpenedModel model = OpenModel(from, choice);
  const Metadata& metadata = model.file.header().metadata;
  const auto found = metadata.find("config");
  if (found != metadata.end()) return found->second;
  throw Error(ExitCode::kUsage, "{}: contains no config: it was not written by a run",
              model.file.path());
}

}  // namespace muster
