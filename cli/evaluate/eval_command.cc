#include "cli/evaluate/eval_command.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string_view>
#include <utility>

#include "cli/data/show_command.h"
#include "cli/evaluate/eval_page.h"
#include "cli/evaluate/eval_text.h"
#include "cli/gpu/job_gpus.h"
#include "cli/job/job_cards.h"
#include "cli/text/console.h"
#include "cli/view/draw_runs.h"
#include "cli/view/run_reader.h"
#include "common/base/atomic_file.h"
#include "common/base/error.h"
#include "common/base/json.h"
#include "common/base/memory.h"
#include "common/base/text.h"
#include "common/config/data_format.h"
#include "common/config/hardware.h"
#include "common/model/hash_variables.h"
#include "common/model/load_weights.h"
#include "common/plan/evaluation_sums.h"

namespace muster {
namespace {

// Up to this many classes, results are counted per class by default.
constexpr int64_t kMostClasses = 1000;
constexpr size_t kMistakesOnPage = 24;

// One process evaluates, on one GPU, or on the CPU with one thread for each configured worker.
std::shared_ptr<JobGpus> PlanCard(const EvalArguments& arguments, const OpenedModel& model,
                                  config::Config& config) {
  const DeviceWish wish = ParseDevices(config.worker().devices());
  if (wish.count > 1 || wish.names.size() > 1) {
    throw Error(ExitCode::kUsage, "{}: expected one GPU, because one process evaluates",
                TypedDevices(arguments.source.settings));
  }
  const config::Cluster given = config.cluster();
  config.mutable_cluster()->set_workers(1);
  std::shared_ptr<JobGpus> cards = PlanCards({.config_path = model.shown,
                                              .settings = arguments.source.settings,
                                              .worker_program = arguments.worker_program,
                                              .wait_s = arguments.wait_s},
                                             config);
  if (config.worker().backend() != config::Worker::CUDA) *config.mutable_cluster() = given;
  return cards;
}

bool CountsClasses(const EvalArguments& arguments, const OpenedModel& model,
                   const EvaluationJob& job) {
  if (!HasValues(job.config.data())) {
    return arguments.confusion || job.graph.classes() <= kMostClasses;
  }
  if (!arguments.confusion) return false;
  throw Error(ExitCode::kUsage, "{}: --confusion: these weights predict values and have no classes",
              model.shown);
}

EvaluationSums::Added AddBlock(const nlohmann::json& line, EvaluationSums& sums) {
  const nlohmann::json& loss = line.at("loss");
  std::vector<double> metrics;
  for (const auto& sum : line.at("metrics")) metrics.push_back(sum.is_null() ? NAN : double{sum});
  const std::vector<uint32_t> labels = line.at("labels"), predicted = line.at("predicted");
  return sums.Add(line.at("block"), {.samples = line.at("samples"),
                                     .loss = loss.is_string() ? std::stod(loss.get<std::string>())
                                                              : loss.get<double>(),
                                     .correct = line.at("correct"),
                                     .metrics = metrics,
                                     .labels = labels,
                                     .predicted = predicted});
}

void Evaluate(const EvalArguments& arguments, const OpenedModel& model, const EvaluationJob& job,
              JobGpus& cards, EvaluationSums& sums, std::vector<SureMistake>& mistakes) {
  SignalSource signals;
  TakeCards(cards, {arguments.wait_s, SayBesideResult}, signals);
  const std::vector<WorkerPlace> places = cards.Places();
  if (places.empty()) {
    for (const std::string& line : cards.Lines()) SayBesideResult(line + "\n");
  }
  std::vector<std::string> words{"evaluate"};
  if (arguments.validation_set) words.emplace_back("--validation-set");
  if (!arguments.html.empty())
    words.insert(words.end(), {"--mistakes", std::to_string(kMistakesOnPage)});
  Console console(STDERR_FILENO);  // because standard output is for the result
  AskWorker({.program = arguments.worker_program,
             .job = job,
             .model = model,
             .words = std::move(words),
             .place = places.empty() ? WorkerPlace() : places.front(),
             .signals = &signals},
            [&](const nlohmann::json& line) {
              if (AddBlock(line, sums) != EvaluationSums::Added::kNew) {
                throw Error(ExitCode::kFailure, "muster-worker: an unexpected block {}",
                            JsonText(line.at("block")));
              }
              for (const nlohmann::json& one : line.value("mistakes", nlohmann::json::array())) {
                mistakes.push_back({one.at("sample"), one.at("label"), one.at("predicted"),
                                    one.at("probability")});
              }
              KeepSurest(kMistakesOnPage, mistakes);
              console.SetLive(fmt::format("evaluating {}/{}", sums.done(), sums.blocks()));
              return true;
            });
  if (sums.Complete()) return;
  throw Error(ExitCode::kFailure, "muster-worker: expected {} blocks, got {}", sums.blocks(),
              sums.done());
}

EvaluationReport ReportOf(const EvalArguments& arguments, const OpenedModel& model,
                          const EvaluationJob& job, const SampleSet& set,
                          const EvaluationSums& sums) {
  const Metadata& metadata = model.file.header().metadata;
  const config::Data& data = job.config.data();
  const EvaluationScores scores = sums.Scores();
  EvaluationReport report{.model = model.shown,
                          .described = DescribeModel(model),
                          .step = StepOf(metadata),
                          .average = IsAverage(metadata),
                          .data = NeedsFiles(data) ? data.dir() : "made-up data",
                          .set = set.name,
                          .images = set.size,
                          .sample = SampleNoun(job.config),
                          .workers = job.config.cluster().workers(),
                          .threads = job.config.worker().threads(),
                          .scores = {scores.accuracy, scores.loss, scores.scalars},
                          .reported = ReportedScores(metadata, set.name),
                          .class_names = job.class_names,
                          .all_classes = arguments.confusion,
                          .csv = arguments.csv};
  const ConfusionMatrix* const matrix = sums.confusion_matrix();
  // Outputs that are not finite predict no class, but the matrix cannot say that.
  if (matrix != nullptr && std::isfinite(scores.loss)) {
    report.confusion = matrix->counts();
    if (!arguments.csv.empty()) WriteFileAtomically(arguments.csv, matrix->Csv(job.class_names));
  }
  return report;
}

// The command of this process, with the run that `latest` is now.
std::string CommandLine(const std::string& run) {
  std::ifstream file("/proc/self/cmdline");
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  words.at(0) = "muster";
  if (std::ranges::find(words, run) == words.end()) {
    std::erase(words, "latest");
    words.insert(std::next(std::ranges::find(words, "eval")), run);
  }
  for (std::string& word : words) word = ShellWord(word);
  return Join(words, " ");
}

std::string WeightsHash(const OpenedModel& model, const Graph& graph) {
  const Metadata& metadata = model.file.header().metadata;
  if (const auto known = metadata.find("weights_hash"); known != metadata.end())
    return known->second;
  Arena weights(graph.arena_floats());
  (void)LoadWeights(model.file, graph, {}, weights.floats());
  return fmt::format("{:016x}", HashVariables(graph.layout(), weights.floats()));
}

// The weights are a file in the directory of their run, or a checkpoint two levels below it.
std::string CurvesOf(const OpenedModel& model) {
  const std::filesystem::path folder =
      std::filesystem::absolute(model.shown).lexically_normal().parent_path();
  for (const std::filesystem::path& dir : {folder, folder.parent_path()}) {
    const std::optional<RunRecord> run = ReadRunIfThere(dir);
    if (run) return run->rows.empty() ? "" : DrawRuns({*run}, PlotAxis::kStep);
  }
  return "";
}

void WritePage(const EvalArguments& arguments, const OpenedModel& model, const EvaluationJob& job,
               const EvaluationReport& report, std::vector<SureMistake> mistakes) {
  std::vector<int64_t> samples;
  samples.reserve(mistakes.size());
  for (const SureMistake& one : mistakes) samples.push_back(one.sample);
  const bool draws = !samples.empty() && report.sample == std::string_view("image");
  WriteFileAtomically(
      arguments.html,
      EvaluationHtml({.report = report,
                      .command = CommandLine(arguments.source.from),
                      .weights_hash = WeightsHash(model, job.graph),
                      .mistakes = std::move(mistakes),
                      .pictures = draws ? Thumbnails(job.config, arguments.validation_set, samples)
                                        : std::vector<Thumbnail>(),
                      .curves = CurvesOf(model)}));
}

}  // namespace

int RunEval(const EvalArguments& arguments) {
  // Fail now rather than at the end if the file cannot be written.
  if (!arguments.csv.empty()) {
    RequireReplaceable("--confusion-csv", arguments.csv, kCsvBeginning);
    (void)AtomicFile(arguments.csv);
  }
  if (!arguments.html.empty()) {
    const std::filesystem::path ending = std::filesystem::path(arguments.html).extension();
    if (ending != ".html" && ending != ".htm") {
      throw Error(ExitCode::kUsage, "--html {}: expected a name that ends in .html",
                  arguments.html);
    }
    RequireReplaceable("--html", arguments.html, kHtmlBeginning);
    (void)AtomicFile(arguments.html);
  }
  const OpenedModel model = OpenModel(arguments.source.from, arguments.source.choice);
  config::Config config = LoadEvaluationConfig(arguments.source, model);
  const std::shared_ptr<JobGpus> cards = PlanCard(arguments, model, config);
  ResolveConfig(config, AvailableCores());
  const EvaluationJob job(std::move(config));
  const bool counts = CountsClasses(arguments, model, job);
  const SetChoice choice = arguments.validation_set ? SetChoice::kValidation : SetChoice::kTest;
  const SampleSet set = CountSet(job.config, choice, arguments.count_data);
  if (set.name == std::string_view("validation")) {
    RefuseTrainedSamples(arguments.source, model, job.config);
  }
  CheckWeights(model, job.graph);
  EvaluationSums sums(set.size, job.config.evaluation().batch(), job.graph.classes(), counts);
  std::vector<SureMistake> mistakes;
  Evaluate(arguments, model, job, *cards, sums, mistakes);
  const EvaluationReport report = ReportOf(arguments, model, job, set, sums);
  if (arguments.json) {
    PrintResultAsIs(EvaluationJson(report));
  } else {
    PrintResult(EvaluationLines(report));
  }
  if (!arguments.html.empty()) {  // last, so that a failure costs no result
    WritePage(arguments, model, job, report, std::move(mistakes));
    if (!arguments.json) PrintResult("wrote " + arguments.html);
  }
  return 0;
}

}  // namespace muster
