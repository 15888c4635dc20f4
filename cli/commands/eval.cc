// `muster eval`.
#include "cli/commands/evaluation_options.h"
#include "cli/data/count_samples.h"
#include "cli/evaluate/eval_command.h"

namespace muster {
namespace {

struct EvalOptions : EvaluationOptions {
  bool validation_set = false;
  bool confusion = false;
  std::string confusion_csv, html;
  std::optional<double> wait_minutes;
};

constexpr const char* kEvalFooter =
    "Evaluates in one process, on one GPU or on the CPU. In a run directory, uses "
    "model.safetensors, or the newest checkpoint if it has more steps (a run in progress), or with "
    "--best, best.safetensors. The result has the same bits as the run's own evaluation of these "
    "weights, and is compared with what the run reported. With up to 1,000 classes, it also shows "
    "each class's recall (share of its images classified correctly) and precision (share of the "
    "images classified as this class that belong to it), and the most frequent confusions. With "
    "more than 12 classes, it shows the worst ones. Does not change the run directory.\n"
    "\n"
    "Examples:\n"
    "  muster eval runs/a --best\n"
    "  muster eval runs/a --validation-set\n"
    "  muster eval runs/a --html a.html\n"
    "  muster eval runs/a/checkpoints/step-00000390-g1-evaluated --workers 1\n"
    "  muster eval model.safetensors --data DIR --json\n"
    "\n"
    "Exit codes: 0 done; 1 failed; 2 command line or config; 3 data or weights; 5 no idle GPU "
    "within --wait; 6 the worker process was killed; 130 or 143 stopped by a signal.";

void DescribeEval(CLI::App& command, EvalOptions& options) {
  options.Add(command);
  command.get_option("FROM")->required(false)->default_str(kLatest);
  command.add_flag("--validation-set", options.validation_set,
                   "Use the validation set; default: the test set, if there is one");
  options.config.AddShorthand(
      command, "--workers", "cluster.workers", "N",
      "On the CPU: number of parallel copies of the network, with worker.threads threads each; "
      "default: one per core, at most 8. Does not change the result");
  options.config.AddShorthand(command, "--devices", "worker.devices", "GPU",
                              "The GPU to use (a number, a UUID or auto), or cpu");
  AddWait(command, options.wait_minutes);
  command.add_flag("--confusion", options.confusion,
                   "Show every class, however many, and the confusion matrix");
  AddOption(command, "--confusion-csv", options.confusion_csv, "FILE",
            "The same, with the matrix in FILE, as in a run's confusion_matrix.csv");
  AddOption(command, "--html", options.html, "FILE",
            "Also write a page for a browser: the scores with their intervals, the confusion "
            "matrix, the most confident mistakes and the run's curves");
  command.footer(kEvalFooter);
}

int DoEval(const EvalOptions& options) {
  return RunEval({.source = options.source(),
                  .validation_set = options.validation_set,
                  .confusion = options.confusion || !options.confusion_csv.empty(),
                  .csv = options.confusion_csv,
                  .html = options.html,
                  .json = options.json,
                  .wait_s = 60 * options.wait_minutes.value_or(0),
                  .worker_program = Sibling("muster-worker"),
                  .count_data = options.validation_set ? CountSamples : CountTestSamples});
}

}  // namespace

void AddEval(CLI::App& app, Action& action) {
  AddCommand<EvalOptions>(app, action, "eval",
                          "Evaluate a run's weights on the test or validation set", DescribeEval,
                          DoEval);
}

}  // namespace muster
