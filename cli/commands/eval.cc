// `muster eval`.
#include "cli/commands/evaluation_options.h"
#include "cli/data/count_samples.h"
#include "cli/evaluate/eval_command.h"

namespace muster {
namespace {

struct EvalOptions : EvaluationOptions {
  bool validation_set = false;
  bool confusion = false;
  std::string confusion_csv;
  std::optional<double> wait_minutes;
};

constexpr const char* kEvalFooter =
    "One process computes all, on one GPU or on the CPU. Of a run directory it takes "
    "model.safetensors, or the newest checkpoint where that has seen more steps (a run under way), "
    "or, with --best, best.safetensors. The result has the bits of the run's own evaluation of "
    "these weights; it says whether it is what the run reported. Of up to 1,000 classes it also "
    "says how they fare: the share of a class's images that are right (recall), that of the images "
    "taken for it that are of it (precision), and the most frequent confusions; of more than 12 "
    "the worst. The directory of the run is only read.\n"
    "\n"
    "Examples:\n"
    "  muster eval runs/a --best\n"
    "  muster eval runs/a --validation-set\n"
    "  muster eval runs/a/checkpoints/step-00000390-g1-evaluated --workers 1\n"
    "  muster eval model.safetensors --data DIR --json\n"
    "\n"
    "Exit codes: 0 done, 1 failed, 2 command line or config, 3 data or weights, 5 no idle GPU "
    "within --wait, 6 the worker process was killed, 130 or 143 stopped by a signal.";

void DescribeEval(CLI::App& command, EvalOptions& options) {
  options.Add(command);
  command.add_flag("--validation-set", options.validation_set,
                   "The validation set; default: the test set, or else the validation set");
  options.config.AddShorthand(
      command, "--workers", "cluster.workers", "N",
      "On the CPU: copies of the network that compute side by side, of worker.threads threads "
      "each; default: one a core, at most 8; the digits are the same with any number");
  options.config.AddShorthand(command, "--devices", "worker.devices", "GPU",
                              "The GPU to compute on (a number, a UUID, auto), or cpu");
  AddWait(command, options.wait_minutes);
  command.add_flag("--confusion", options.confusion,
                   "How every class fares, also of many, and all counts");
  AddOption(command, "--confusion-csv", options.confusion_csv, "FILE",
            "The same, with all counts in FILE, as in a run's confusion_matrix.csv");
  command.footer(kEvalFooter);
}

int DoEval(const EvalOptions& options) {
  return RunEval({.source = options.source(),
                  .validation_set = options.validation_set,
                  .confusion = options.confusion || !options.confusion_csv.empty(),
                  .csv = options.confusion_csv,
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
