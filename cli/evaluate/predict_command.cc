#include "cli/evaluate/predict_command.h"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>

#include "cli/evaluate/eval_text.h"
#include "cli/process/held_file.h"
#include "cli/text/console.h"
#include "cli/text/text_table.h"
#include "cli/text/units.h"
#include "common/base/csv.h"
#include "common/base/error.h"
#include "common/base/json.h"
#include "common/base/text.h"
#include "common/config/data_format.h"
#include "common/model/model_metadata.h"

namespace muster {

std::vector<Candidate> MostLikely(std::span<const float> outputs, ProbabilitiesBy by,
                                  size_t count) {
  const std::vector<double> shares = Probabilities(outputs, by);
  std::vector<size_t> order(outputs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  // Sort by outputs, because different outputs may give equal probabilities.
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return outputs[a] > outputs[b]; });
  order.resize(std::min(count, order.size()));
  std::vector<Candidate> top;
  top.reserve(order.size());
  for (const size_t number : order) top.push_back({static_cast<int64_t>(number), shares[number]});
  return top;
}

bool IsRight(std::span<const float> outputs, int64_t label) {
  const float of_label = outputs[static_cast<size_t>(label)];
  return std::ranges::count_if(outputs, [&](float x) { return x >= of_label; }) == 1;  // the label
}

namespace {

using OrderedJson = nlohmann::ordered_json;

struct Prediction {
  int64_t sample = 0, label = 0;
  bool right = false;  // as counted by an evaluation
  std::vector<Candidate> top;
};

void RequireFiles(const OpenedModel& model, const config::Data& data) {
  if (data.format() == config::Data::IMAGE_FOLDER || data.format() == config::Data::NPZ) return;
  throw Error(ExitCode::kUsage,
              "{}: expected a network trained on photos or arrays (data.format IMAGE_FOLDER or "
              "NPZ), found data.format {}: give --samples instead of images",
              model.shown, config::Data::Format_Name(data.format()));
}

EvaluationJob Prepare(const PredictArguments& arguments, const OpenedModel& model) {
  config::Config config = LoadEvaluationConfig(arguments.source, model);
  config.mutable_cluster()->set_workers(1);
  if (arguments.images.empty()) {
    ResolveConfig(config, AvailableCores());
  } else {
    RequireFiles(model, config.data());
    ResolveForMachine(config, AvailableCores());  // does not need the data set
  }
  return EvaluationJob(std::move(config));
}

// Returns one output per class.
std::vector<float> OutputsIn(const nlohmann::json& line, const EvaluationJob& job) {
  const auto outputs = line.at("logits").get<std::vector<float>>();
  if (std::ssize(outputs) != job.graph.outputs()) {
    throw Error(ExitCode::kFailure, "muster-worker: expected {} logits, got {}",
                job.graph.outputs(), outputs.size());
  }
  return OutputOfEachClass(job.graph, outputs);
}

std::vector<Prediction> PredictSamples(const PredictArguments& arguments, const OpenedModel& model,
                                       const EvaluationJob& job,
                                       const std::vector<int64_t>& samples) {
  std::vector<std::string> words{"predict", "--samples", arguments.samples};
  if (arguments.training_set) words.emplace_back("--training-set");
  const ProbabilitiesBy by = ProbabilitiesOf(job.graph);
  std::map<int64_t, Prediction> by_sample;
  const WorkerCall call{
      .program = arguments.worker_program, .job = job, .model = model, .words = words};
  AskWorker(call, [&](const nlohmann::json& line) {
    const std::vector<float> outputs = OutputsIn(line, job);
    const int64_t sample = line.at("sample"), label = line.at("label");
    by_sample[sample] = {.sample = sample,
                         .label = label,
                         .right = IsRight(outputs, label),
                         .top = MostLikely(outputs, by, arguments.top)};
    return true;
  });
  std::vector<Prediction> predictions;
  predictions.reserve(samples.size());
  for (const int64_t sample : samples) {
    const auto found = by_sample.find(sample);
    if (found == by_sample.end()) {
      throw Error(ExitCode::kFailure, "muster-worker predict: no answer for sample {}", sample);
    }
    predictions.push_back(found->second);
  }
  return predictions;
}

int64_t RightOf(const std::vector<Prediction>& predictions) {
  return std::ranges::count_if(predictions, &Prediction::right);
}

// "cat 98 %, dog 2 %". A number before a name would look like a rank.
std::string TopText(const std::vector<Candidate>& top, const EvaluationJob& job) {
  std::vector<std::string> taken;
  taken.reserve(top.size());
  for (const Candidate& one : top) {
    taken.push_back(fmt::format("{} {}",
                                ClassName(static_cast<size_t>(one.number), job.class_names),
                                FormatPercent(one.probability, 2)));
  }
  return Join(taken, ", ");
}

std::vector<std::string> Lines(const std::vector<Prediction>& predictions, const EvaluationJob& job,
                               const OpenedModel& model, const char* set) {
  TextTable table({{"sample", true}, {"label"}, {""}, {"predicted"}});
  for (const Prediction& prediction : predictions) {
    table.AddRow({FormatCount(prediction.sample), ClassText(prediction.label, job.class_names),
                  prediction.right ? "right" : "wrong", TopText(prediction.top, job)});
  }
  std::vector<std::string> lines{DescribeModel(model), ""};
  for (std::string& line : table.Lines()) lines.push_back(std::move(line));
  lines.emplace_back();
  lines.push_back(fmt::format("{} of the {} set, {} right",
                              Plural(std::ssize(predictions), "sample"), set,
                              FormatCount(RightOf(predictions))));
  return lines;
}

OrderedJson ClassJson(int64_t number, const std::vector<std::string>& names) {
  OrderedJson json{{"class", number}};
  const auto place = static_cast<size_t>(number);
  if (place < names.size()) json["name"] = names[place];
  return json;
}

OrderedJson TopJson(const std::vector<Candidate>& top, const EvaluationJob& job) {
  OrderedJson json = OrderedJson::array();
  for (const Candidate& one : top) {
    json.push_back(ClassJson(one.number, job.class_names));
    json.back()["probability"] = one.probability;
  }
  return json;
}

std::string JsonOf(const std::vector<Prediction>& predictions, const EvaluationJob& job,
                   const OpenedModel& model, const char* set) {
  OrderedJson samples = OrderedJson::array();
  for (const Prediction& prediction : predictions) {
    samples.push_back({{"sample", prediction.sample},
                       {"label", ClassJson(prediction.label, job.class_names)},
                       {"right", prediction.right},
                       {"top", TopJson(prediction.top, job)}});
  }
  const auto step = StepOf(model.file.header().metadata);
  const OrderedJson json{{"model", model.shown},
                         {"step", step ? OrderedJson(*step) : OrderedJson()},
                         {"average", IsAverage(model.file.header().metadata)},
                         {"set", set},
                         {"right", RightOf(predictions)},
                         {"samples", std::move(samples)}};
  return JsonText(json, 2);
}

int ShowSamples(const PredictArguments& arguments, const OpenedModel& model,
                const EvaluationJob& job) {
  if (HasValues(job.config.data())) {
    throw Error(
        ExitCode::kUsage,
        "{}: --samples requires classes, but this network predicts values: give a .npz file",
        model.shown);
  }
  const SetChoice choice = arguments.training_set ? SetChoice::kTraining : SetChoice::kTest;
  const SampleSet set = CountSet(job.config, choice, arguments.count_data);
  const std::vector<int64_t> samples = ParseNumberList("--samples", arguments.samples, set.size);
  CheckWeights(model, job.graph);
  const std::vector<Prediction> predictions = PredictSamples(arguments, model, job, samples);
  if (arguments.json) {
    PrintResultAsIs(JsonOf(predictions, job, model, set.name));
  } else {
    PrintResult(Lines(predictions, job, model, set.name));
  }
  return 0;
}

std::string CsvRows(const std::string& image, const std::vector<Candidate>& top,
                    const EvaluationJob& job) {
  std::vector<std::string> rows;
  rows.reserve(top.size());
  for (const Candidate& one : top) {
    const auto place = static_cast<size_t>(one.number);
    const std::string name = place < job.class_names.size() ? job.class_names[place] : "";
    rows.push_back(
        fmt::format("{},{},{},{}", CsvField(image), one.number, CsvField(name), one.probability));
  }
  return Join(rows, "\n");
}

bool PrintValue(const PredictArguments& arguments, const std::string& image, float value) {
  if (arguments.csv) return PrintResultAsIs(fmt::format("{},{}", CsvField(image), value));
  if (!arguments.json) return PrintResult(fmt::format("{}: {:g}", image, value));
  return PrintResultAsIs(JsonText(OrderedJson{{"image", image}, {"value", value}}));
}

int ShowImages(const PredictArguments& arguments, const OpenedModel& model,
               const EvaluationJob& job) {
  CheckWeights(model, job.graph);
  std::string paths;
  for (const std::string& image : arguments.images) paths += image + '\0';
  const HeldFile list = HeldFile::OfText(paths);
  const bool as_text = !arguments.json && !arguments.csv;
  const ProbabilitiesBy by = ProbabilitiesOf(job.graph);
  std::vector<std::string> heading;  // printed with the first image, not before an error
  const bool has_values = HasValues(job.config.data());
  if (arguments.csv) heading = {has_values ? "image,value" : "image,class,name,probability"};
  if (as_text) heading = {DescribeModel(model), ""};
  int64_t images = 0, unreadable = 0;
  const WorkerCall call{.program = arguments.worker_program,
                        .job = job,
                        .model = model,
                        .words = {"predict", "--images", list.path()}};
  AskWorker(call, [&](const nlohmann::json& line) {
    if (++images == 1) PrintResult(heading);
    const std::string image = line.at("image");
    if (line.contains("error")) {
      ++unreadable;
      const std::string error = line["error"];
      PrintError(fmt::format("muster: error: {}\n", error));
      return !arguments.json ||
             PrintResultAsIs(JsonText(OrderedJson{{"image", image}, {"error", error}}));
    }
    const std::vector<float> outputs = OutputsIn(line, job);
    if (has_values) return PrintValue(arguments, image, outputs.front());
    const std::vector<Candidate> top = MostLikely(outputs, by, arguments.top);
    if (arguments.csv) return PrintResultAsIs(CsvRows(image, top, job));
    if (as_text) return PrintResult(fmt::format("{}: {}", image, TopText(top, job)));
    return PrintResultAsIs(JsonText(OrderedJson{{"image", image}, {"top", TopJson(top, job)}}));
  });
  if (unreadable == 0) return 0;
  throw Error(ExitCode::kData, "{} of {} could not be read", unreadable, Plural(images, "image"));
}

}  // namespace

int RunPredict(const PredictArguments& arguments) {
  const OpenedModel model = OpenModel(arguments.source.from, arguments.source.choice);
  const EvaluationJob job = Prepare(arguments, model);
  return arguments.images.empty() ? ShowSamples(arguments, model, job)
                                  : ShowImages(arguments, model, job);
}

}  // namespace muster
