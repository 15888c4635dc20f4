#include "cli/evaluate/eval_command.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cstring>

#include "cli/evaluate/eval_text.h"
#include "cli/job/job_display.h"
#include "cli/job/memory_check.h"
#include "cli/job/run_job.h"
#include "cli/job/watch_job.h"
#include "cli/job/workers_by_hand.h"
#include "cli/process/held_file.h"
#include "cli/process/log_tail.h"
#include "cli/text/console.h"
#include "common/base/atomic_file.h"
#include "common/base/error.h"
#include "common/base/file.h"
#include "common/base/text.h"
#include "common/config/data_format.h"

namespace muster {
namespace {

constexpr size_t kLogLinesShown = 5;

// Whether the classes' results are counted without being asked for: where the counts are few, and
// fit into a worker's messages.
bool CountsClasses(const PreparedJob& job) {
  constexpr int64_t kMostClasses = 1000;
  constexpr uint32_t kMostPredictions = 16384;
  return !HasValues(job.config.data()) && job.graph.classes() <= kMostClasses &&
         job.config.evaluation().batch() <= kMostPredictions;
}

// What to say of a job that came to no result.
std::string FailureText(const JobOutcome& outcome) {
  if (outcome.stop_signal != 0) {
    return fmt::format("Stopped by SIG{}: nothing was evaluated.\n",
                       ::sigabbrev_np(outcome.stop_signal));
  }
  std::string text = "muster: error: ";
  text += outcome.failure ? outcome.failure->what : "the job ended without a result";
  text += "\n";
  if (!outcome.server_said.empty()) text += "  the server says: " + outcome.server_said + "\n";
  if (outcome.log_path.empty()) return text;
  for (const std::string& line : LastLines(outcome.log_path, kLogLinesShown)) {
    text += "    | " + line + "\n";
  }
  return text;
}

class Evaluate {
 public:
  Evaluate(const EvalArguments& arguments, const OpenedModel& model)
      : arguments_(arguments), model_(model) {}

  int Run(const PreparedJob& job, SignalSource& signals) {
    CheckWeights(model_, job.graph);
    (void)CheckMemory(LeastMemoryOf(job.config, job.graph), ReadMachineMemory());
    const TemporaryFolder folder;
    const JobOutcome outcome = RunIn(folder.path(), job, signals);
    const bool complete = outcome.exit_code == ExitCode::kOk && outcome.summary &&
                          (outcome.summary->has_test() || outcome.summary->has_validation());
    if (!complete) {
      PrintError(FailureText(outcome));
      return static_cast<int>(outcome.exit_code == ExitCode::kOk ? ExitCode::kFailure
                                                                 : outcome.exit_code);
    }
    const EvaluationReport report = ReportOf(job, *outcome.summary, folder.path());
    if (arguments_.json) {
      PrintResultAsIs(EvaluationJson(report));
    } else {
      PrintResult(EvaluationLines(report));
    }
    return 0;
  }

 private:
  JobOutcome RunIn(const std::string& folder, const PreparedJob& job, SignalSource& signals) {
    const RunDir dir = RunDir::Open(folder);
    config::Config config = job.config;
    config.mutable_run()->set_dir(dir.path());
    config.mutable_run()->set_initial_weights(model_.held.path());
    if (CountsClasses(job)) config.mutable_evaluation()->set_confusion_matrix(true);
    WriteConfig(config, dir.ConfigPath());
    const JobPlan plan{.server_program = arguments_.server_program,
                       .worker_program = arguments_.worker_program,
                       .dir = &dir,
                       .config = &config,
                       .config_path = dir.ConfigPath(),
                       .places = job.cards ? job.cards->Places() : std::vector<WorkerPlace>(),
                       .endpoint = EndpointFor(config),
                       .token = NewToken(),
                       .evaluate = true};
    Console console(STDERR_FILENO);  // standard output is for the result
    JobDisplay display(console, plan);
    return WatchJob(plan, signals, console, display);
  }

  EvaluationReport ReportOf(const PreparedJob& job, const events::Summary& summary,
                            const std::string& folder) const {
    const Metadata& metadata = model_.file.header().metadata;
    const config::Data& data = job.config.data();
    const std::string set = summary.has_test() ? "test" : "validation";
    const events::Scores& scores = summary.has_test() ? summary.test() : summary.validation();
    EvaluationReport report{.model = model_.shown,
                            .described = DescribeModel(model_),
                            .step = StepOf(metadata),
                            .average = IsAverage(metadata),
                            .data = NeedsFiles(data) ? data.dir() : "made-up data",
                            .data_remark = job.data.remark,
                            .set = set,
                            .images = summary.has_test() ? job.data.test : job.data.validation,
                            .workers = job.config.cluster().workers(),
                            .threads = job.config.worker().threads(),
                            .reported = ReportedScores(metadata, set),
                            .class_names = {data.class_names().begin(), data.class_names().end()},
                            .all_classes = arguments_.confusion};
    if (scores.has_accuracy()) report.scores.accuracy = scores.accuracy();
    if (scores.has_top5_accuracy()) report.scores.top5_accuracy = scores.top5_accuracy();
    if (scores.has_loss()) report.scores.loss = scores.loss();
    if (arguments_.confusion || CountsClasses(job)) {
      TakeConfusion(folder + "/confusion_matrix.csv", job.graph.classes(), report);
    }
    return report;
  }

  void TakeConfusion(const std::string& written, int64_t classes, EvaluationReport& report) const {
    const std::string csv = ReadFileIfThere(written);
    // A network may have more classes than the data have names: then the file has numbers.
    const bool named = std::ssize(report.class_names) == classes;
    report.confusion = ParseConfusion(csv, named ? report.class_names : std::vector<std::string>());
    if (arguments_.csv.empty()) return;
    WriteFileAtomically(arguments_.csv, csv);
    report.csv = arguments_.csv;
  }

  const EvalArguments& arguments_;
  const OpenedModel& model_;
};

}  // namespace

int RunEval(const EvalArguments& arguments) {
  // Said now whether it can be written, and not when all is done.
  if (!arguments.csv.empty()) (void)AtomicFile(arguments.csv);
  const OpenedModel model = OpenModel(arguments.source.from, arguments.source.choice);
  const HeldFile config = WriteEvaluationConfig(arguments.source, model, arguments.confusion);
  const LaunchArguments launch{
      .config_path = config.path(),
      .settings = arguments.source.settings,
      .server_program = arguments.server_program,
      .worker_program = arguments.worker_program,
      .wait_s = arguments.wait_s,
      .count_data = arguments.count_data,
      .in_place_of_run = [&](const PreparedJob& job, SignalSource& signals) {
        if (arguments.confusion && HasValues(job.config.data())) {
          throw Error(ExitCode::kUsage,
                      "{}: --confusion: these weights predict values: there are no classes to "
                      "count",
                      model.shown);
        }
        if (job.data.test == 0 && job.data.validation == 0) {
          throw Error(ExitCode::kData, "{}: has no test images to evaluate on",
                      NeedsFiles(job.config.data()) ? job.config.data().dir()
                                                    : "data.synthetic.test_samples");
        }
        return Evaluate(arguments, model).Run(job, signals);
      }};
  try {
    return RunLaunch(launch);
  } catch (const Error& error) {
    throw Renamed(error, config.path(), model.shown + " (config)");
  }
}

}  // namespace muster
