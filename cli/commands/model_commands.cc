#include "cli/commands/model_commands.h"

#include <utility>

#include "cli/commands/programs.h"
#include "cli/data/count_samples.h"
#include "cli/evaluate/eval_command.h"
#include "cli/evaluate/predict_command.h"
#include "cli/model/export_command.h"
#include "cli/model/import_command.h"
#include "cli/model/inspect_command.h"
#include "cli/model/inspect_source.h"
#include "cli/text/console.h"
#include "common/base/error.h"
#include "common/base/join.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

ModelChoice ChoiceOf(const Arguments& arguments) {
  return {.average = arguments.ema, .raw = arguments.raw, .best = arguments.best};
}

EvaluationSource SourceOf(const Arguments& arguments) {
  return {.from = arguments.from,
          .choice = ChoiceOf(arguments),
          .config_path = arguments.config,
          .settings = SettingsOf(arguments)};
}

}  // namespace

int Inspect(const Arguments& arguments) {
  if (IsModel(arguments.config)) {
    if (!arguments.set.empty()) {
      throw Error(ExitCode::kUsage, "--set: {} is no config, and has no settings to change",
                  arguments.config);
    }
    const ModelChoice choice = ChoiceOf(arguments);
    if (arguments.show_config) {
      PrintResult(ConfigTextIn(arguments.config, choice));
      return 0;
    }
    const Inspected inspected = InspectSource(arguments.config, choice);
    PrintResult(Join(inspected.lines, "\n"));
    if (inspected.trouble) throw Error(*inspected.trouble);
    return 0;
  }
  for (const auto& [given, option] :
       {std::pair(arguments.show_config, "--config"), std::pair(arguments.ema, "--ema"),
        std::pair(arguments.raw, "--raw"), std::pair(arguments.best, "--best")}) {
    if (!given) continue;
    throw Error(ExitCode::kUsage,
                "{}: {} is a config, expected a run directory, a checkpoint or a file of weights",
                option, arguments.config);
  }
  PrintResult(Join(InspectLines(LoadConfig(arguments.config, SettingsOf(arguments))), "\n"));
  return 0;
}

int Import(const Arguments& arguments) {
  PrintResult(Join(ImportModel({.file = arguments.from,
                                .config_path = arguments.config,
                                .settings = SettingsOf(arguments),
                                .names = arguments.names,
                                .skip_mismatched = arguments.skip_mismatched,
                                .out = arguments.out,
                                .force = arguments.force}),
                   "\n"));
  return 0;
}

int Export(const Arguments& arguments) {
  PrintResult(Join(ExportModel({.from = arguments.from,
                                .format = arguments.format,
                                .choice = ChoiceOf(arguments),
                                .config_path = arguments.config,
                                .settings = SettingsOf(arguments),
                                .out = arguments.out,
                                .force = arguments.force}),
                   "\n"));
  return 0;
}

int Eval(const Arguments& arguments) {
  return RunEval({.source = SourceOf(arguments),
                  .confusion = arguments.confusion || !arguments.confusion_csv.empty(),
                  .csv = arguments.confusion_csv,
                  .json = arguments.json,
                  .wait_s = 60 * arguments.wait_minutes.value_or(0),
                  .server_program = Sibling("muster-server"),
                  .worker_program = Sibling("muster-worker"),
                  .count_data = CountTestSamples});
}

int Predict(const Arguments& arguments) {
  return RunPredict({.source = SourceOf(arguments),
                     .samples = arguments.samples,
                     .training_set = arguments.training_set,
                     .top = arguments.top,
                     .json = arguments.json,
                     .worker_program = Sibling("muster-worker"),
                     .count_data = arguments.training_set ? CountSamples : CountTestSamples});
}

}  // namespace muster
