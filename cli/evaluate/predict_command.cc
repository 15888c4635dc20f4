#include "cli/evaluate/predict_command.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "cli/evaluate/eval_text.h"
#include "cli/process/json_program.h"
#include "cli/text/console.h"
#include "cli/text/text_table.h"
#include "cli/text/units.h"
#include "common/base/error.h"
#include "common/base/text.h"
#include "common/config/build_graph.h"
#include "common/config/data_format.h"
#include "common/model/model_metadata.h"

namespace muster {
namespace {

std::vector<double> Softmax(std::span<const float> logits) {
  const double largest = *std::ranges::max_element(logits);
  std::vector<double> shares;
  double sum = 0;
  for (const float logit : logits) sum += shares.emplace_back(std::exp(logit - largest));
  for (double& share : shares) share /= sum;
  return shares;
}

}  // namespace

Prediction PredictionOf(int64_t sample, int64_t label, std::span<const float> outputs,
                        bool are_probabilities, size_t top) {
  const std::vector<double> shares =
      are_probabilities ? std::vector<double>(outputs.begin(), outputs.end()) : Softmax(outputs);
  std::vector<size_t> order(outputs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  // By the outputs: what differs there may be the same in a softmax.
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return outputs[a] > outputs[b]; });
  Prediction prediction{.sample = sample, .label = label};
  const auto as_large = std::ranges::count_if(
      outputs, [&](float x) { return x >= outputs[static_cast<size_t>(label)]; });
  prediction.right = as_large == 1;  // itself
  order.resize(std::min(top, order.size()));
  for (const size_t number : order) {
    prediction.top.push_back({static_cast<int64_t>(number), shares[number]});
  }
  return prediction;
}

namespace {

using Json = nlohmann::ordered_json;

// Whole data sets can be asked for.
constexpr double kDeadlineSeconds = 24 * 3600;

// Asked for, and what is known beforehand.
struct Job {
  config::Config config;  // resolved
  Graph graph;
  std::vector<int64_t> samples;
  std::vector<std::string> class_names;
};

// The outputs of a network that ends with a softmax, and is trained by their squared error.
bool OutputsAreProbabilities(const Graph& graph) {
  const Layer& loss = graph.layers().back();
  const int read = loss.inputs.front();
  return std::holds_alternative<MeanSquaredErrorSpec>(loss.spec) && read >= 0 &&
         std::holds_alternative<SoftmaxSpec>(graph.layers()[static_cast<size_t>(read)].spec);
}

int64_t SamplesIn(const PredictArguments& arguments, const config::Config& config) {
  DataCount data{.train = config.data().synthetic().train_samples(),
                 .test = config.data().synthetic().test_samples()};
  if (NeedsFiles(config.data())) data = arguments.count_data(config);
  if (!data.problem.empty()) throw Error(data.code, data.problem);
  const int64_t size = arguments.training_set ? data.train : data.test;
  if (size > 0) return size;
  throw Error(ExitCode::kData, "the {} set has no samples",
              arguments.training_set ? "training" : "test");
}

Job Prepare(const PredictArguments& arguments, const std::string& config_path) {
  config::Config config = LoadConfig(config_path, arguments.source.settings);
  config.mutable_cluster()->set_workers(1);
  ResolveConfig(config, AvailableCores());
  Graph graph = BuildGraph(config.model(), InputShape(config.data()));
  std::vector<int64_t> samples =
      ParseNumberList("--samples", arguments.samples, SamplesIn(arguments, config));
  const auto& names = config.data().class_names();
  std::vector<std::string> class_names(names.begin(), names.end());
  return {.config = std::move(config),
          .graph = std::move(graph),
          .samples = std::move(samples),
          .class_names = std::move(class_names)};
}

Prediction Parse(const nlohmann::json& line, const Job& job, size_t top) {
  const auto sample = line.find("sample"), label = line.find("label"), logits = line.find("logits");
  const bool fits = sample != line.end() && sample->is_number_integer() && label != line.end() &&
                    label->is_number_integer() && logits != line.end() && logits->is_array() &&
                    static_cast<int64_t>(logits->size()) == job.graph.classes() &&
                    label->get<int64_t>() >= 0 && label->get<int64_t>() < job.graph.classes();
  if (!fits) {
    throw Error(ExitCode::kFailure,
                "muster-worker --predict: expected sample, label and {} logits, got {}: are muster "
                "and muster-worker of one build?",
                job.graph.classes(), line.dump());
  }
  std::vector<float> outputs;
  for (const auto& logit : *logits) outputs.push_back(static_cast<float>(logit.get<double>()));
  return PredictionOf(sample->get<int64_t>(), label->get<int64_t>(), outputs,
                      OutputsAreProbabilities(job.graph), top);
}

std::vector<Prediction> Ask(const PredictArguments& arguments, const OpenedModel& model,
                            const Job& job) {
  const HeldFile config = HeldFile::OfText(ConfigText(job.config));
  std::vector<std::string> words{"--config",  config.path(),     "--rank",    "0",
                                 "--predict", arguments.samples, "--weights", model.held.path()};
  if (arguments.training_set) words.emplace_back("--training-set");
  std::map<int64_t, Prediction> by_sample;
  for (const auto& line : RunJsonProgram(arguments.worker_program, words, kDeadlineSeconds)) {
    const Prediction prediction = Parse(line, job, arguments.top);
    by_sample[prediction.sample] = prediction;
  }
  std::vector<Prediction> predictions;
  for (const int64_t sample : job.samples) {
    const auto found = by_sample.find(sample);
    if (found == by_sample.end()) {
      throw Error(ExitCode::kFailure, "muster-worker --predict: no answer for sample {}", sample);
    }
    predictions.push_back(found->second);
  }
  return predictions;
}

int64_t RightOf(const std::vector<Prediction>& predictions) {
  return std::ranges::count_if(predictions, &Prediction::right);
}

std::vector<std::string> Lines(const std::vector<Prediction>& predictions, const Job& job,
                               const OpenedModel& model, bool training_set) {
  TextTable table({{"sample", true}, {"label"}, {""}, {"taken for"}});
  for (const Prediction& prediction : predictions) {
    std::vector<std::string> taken;
    for (const Candidate& one : prediction.top) {
      taken.push_back(fmt::format("{} {}", ClassText(one.number, job.class_names),
                                  FormatPercent(one.probability, 2)));
    }
    table.AddRow({FormatCount(prediction.sample), ClassText(prediction.label, job.class_names),
                  prediction.right ? "right" : "wrong", Join(taken, ", ")});
  }
  std::vector<std::string> lines{DescribeModel(model), ""};
  for (std::string& line : table.Lines()) lines.push_back(std::move(line));
  lines.emplace_back();
  lines.push_back(
      fmt::format("{} of the {} set, {} right", Plural(std::ssize(predictions), "sample"),
                  training_set ? "training" : "test", FormatCount(RightOf(predictions))));
  return lines;
}

Json ClassJson(int64_t number, const std::vector<std::string>& names) {
  Json json{{"class", number}};
  const auto place = static_cast<size_t>(number);
  if (place < names.size()) json["name"] = names[place];
  return json;
}

std::string JsonText(const std::vector<Prediction>& predictions, const Job& job,
                     const OpenedModel& model, bool training_set) {
  Json samples = Json::array();
  for (const Prediction& prediction : predictions) {
    Json top = Json::array();
    for (const Candidate& one : prediction.top) {
      top.push_back(ClassJson(one.number, job.class_names));
      top.back()["probability"] = one.probability;
    }
    samples.push_back({{"sample", prediction.sample},
                       {"label", ClassJson(prediction.label, job.class_names)},
                       {"right", prediction.right},
                       {"top", std::move(top)}});
  }
  const auto step = StepOf(model.file.header().metadata);
  const Json json{{"model", model.shown},
                  {"step", step ? Json(*step) : Json()},
                  {"average", IsAverage(model.file.header().metadata)},
                  {"set", training_set ? "training" : "test"},
                  {"right", RightOf(predictions)},
                  {"samples", std::move(samples)}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

int RunPredict(const PredictArguments& arguments) {
  const OpenedModel model = OpenModel(arguments.source.from, arguments.source.choice);
  const HeldFile config =
      WriteEvaluationConfig(arguments.source, model, /*confusion_matrix=*/false);
  const Job job = Prepare(arguments, config.path());
  CheckWeights(model, job.graph);
  const std::vector<Prediction> predictions = Ask(arguments, model, job);
  if (arguments.json) {
    PrintResultAsIs(JsonText(predictions, job, model, arguments.training_set));
  } else {
    PrintResult(Lines(predictions, job, model, arguments.training_set));
  }
  return 0;
}

}  // namespace muster
