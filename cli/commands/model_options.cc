#include "cli/commands/model_options.h"

#include "cli/commands/help_text.h"
#include "cli/commands/option_kinds.h"

namespace muster {
namespace {

// Which of the weights that a run or a checkpoint holds.
void AddChoice(CLI::App& command, Arguments& arguments) {
  CLI::Option* const best =
      command.add_flag("--best", arguments.best, "Of a run directory those of the best evaluation");
  CLI::Option* const average =
      command.add_flag("--ema", arguments.ema, "The moving average of the weights")->excludes(best);
  command
      .add_flag("--raw", arguments.raw,
                "The weights themselves, where evaluations use their average")
      ->excludes(best)
      ->excludes(average);
}

// Which weights a command is about.
void AddModelArguments(CLI::App& command, Arguments& arguments) {
  command
      .add_option("FROM", arguments.from,
                  "A run directory, a checkpoint (a folder of "
                  "RUN_DIR/checkpoints), or a safetensors file")
      ->required()
      ->type_name("PATH")
      ->check(SomeText());
  AddChoice(command, arguments);
}

// … and what is needed to compute with them.
void AddEvaluationArguments(CLI::App& command, Arguments& arguments) {
  AddModelArguments(command, arguments);
  AddOption(command, "--data", arguments.data, "DIR", "Directory of the data; default: the run's");
  AddOption(command, "--config", arguments.config, "CONFIG",
            "Network and data, where the file says none");
  AddSettings(command, arguments,
              "A setting of data, worker, cluster or evaluation; may be repeated");
  command.add_flag("--json", arguments.json, "Print one JSON object instead");
}

void AddOutputFile(CLI::App& command, Arguments& arguments, const char* what) {
  command.add_option("OUT", arguments.out, what)->required()->type_name("PATH")->check(SomeText());
  command.add_flag("--force", arguments.force,
                   "Replace OUT, if it is there already; of a symbolic link the link, and not what "
                   "it points to");
}

}  // namespace

void DescribeInspect(CLI::App& inspect, Arguments& arguments) {
  AddConfigArguments(inspect, arguments);
  inspect.get_option("CONFIG")
      ->description(
          "A config (configs/*.txtpb), a run directory, a checkpoint (a folder of "
          "RUN_DIR/checkpoints), or a safetensors file")
      ->type_name("PATH");
  inspect.get_option("--set")->description("Any setting of a config; may be repeated");
  inspect.add_flag("--config", arguments.show_config,
                   "Of weights: print the config of their run, and nothing else");
  AddChoice(inspect, arguments);
  inspect.footer(kInspectFooter);
}

void DescribeImport(CLI::App& import, Arguments& arguments) {
  import
      .add_option("FILE", arguments.from, "A safetensors file, such as PyTorch's save_file writes")
      ->required()
      ->type_name("PATH")
      ->check(SomeText());
  AddOutputFile(import, arguments, "The file to write, for launch --initial-weights");
  AddOption(import, "--config", arguments.config, "CONFIG",
            "The config whose network the weights are for");
  import.get_option("--config")->required();
  AddSettings(import, arguments, "Any setting of that config; may be repeated");
  AddOption(
      import, "--map", arguments.names, "NAMES",
      "A file with lines \"THEIRS OURS\": what variables, or all that begin with a name and a "
      "dot, are called here; OURS is - for what is to be left out");
  AddSkipMismatched(import, arguments);
  import.footer(kImportFooter);
}

void DescribeEval(CLI::App& command, Arguments& arguments) {
  AddEvaluationArguments(command, arguments);
  AddOption(command, "--workers", arguments.workers, "N",
            "Worker processes; default: one a core, at most 8; the digits are the same with any "
            "number");
  AddOption(command, "--devices", arguments.devices, "LIST",
            "Cards (GPUs), one a worker, as of launch");
  AddWait(command, arguments);
  command.add_flag("--confusion", arguments.confusion,
                   "Also how each class fares: how many are right, what others are taken for");
  AddOption(command, "--confusion-csv", arguments.confusion_csv, "FILE",
            "The same, with all counts in FILE, as in a run's confusion_matrix.csv");
  command.footer(kEvalFooter);
}

void DescribePredict(CLI::App& command, Arguments& arguments) {
  AddEvaluationArguments(command, arguments);
  command.add_option("--samples", arguments.samples, "Which, counted from 0: 0-9,17")
      ->required()
      ->type_name("LIST")
      ->check(SomeText());
  command.add_flag("--training-set", arguments.training_set,
                   "Samples of the training set, without augmentation; default: the test set");
  command.add_option("--top", arguments.top, "How many classes to show of each")
      ->type_name("K")
      ->check(WholeNumber(1, 1'000'000))
      ->capture_default_str();
  command.footer(kPredictFooter);
}

void DescribeExport(CLI::App& command, Arguments& arguments) {
  AddModelArguments(command, arguments);
  AddOutputFile(command, arguments, "The file to write");
  command.add_option("--format", arguments.format, "safetensors, npz (NumPy) or onnx")
      ->required()
      ->type_name("FORMAT")
      ->check(OneOf({"safetensors", "npz", "onnx"}));
  AddOption(command, "--config", arguments.config, "CONFIG",
            "The network, for onnx, where the file says none");
  CLI::Option* const config = command.get_option("--config");
  AddSettings(command, arguments, "Any setting of that config; may be repeated")->needs(config);
  command.footer(kExportFooter);
}

}  // namespace muster
