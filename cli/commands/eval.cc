// `muster eval`.
#include "cli/commands/evaluation_options.h"
#include "cli/data/count_samples.h"
#include "cli/evaluate/eval_command.h"

namespace muster {
namespace {

struct EvalOptions : EvaluationOptions {
  bool confusion = false;
  std::string confusion_csv;
  std::optional<double> wait_minutes;
};

constexpr const char* kEvalFooter =
    "Starts a server and workers as `muster launch` does, and trains nothing. Of a "
    "run directory it takes model.safetensors, or the newest checkpoint where that "
    "has seen more steps (a run under way), or, with --best, best.safetensors. The "
    "result has the bits of the run's own evaluation of these weights, on any number "
    "of workers; it says whether it is what the run reported. Of up to 1,000 classes it also says "
    "how they fare: the share of a class's images that are right (recall), that of the images "
    "taken for it that are of it (precision), and the most frequent confusions; of more than 12 "
    "the worst. The directory of the run is only read.\n"
    "\n"
    "Examples:\n"
    "  muster eval runs/a --best\n"
    "  muster eval runs/a/checkpoints/step-00000390-g1-evaluated --workers 4\n"
    "  muster eval model.safetensors --data DIR --json\n"
    "\n"
    "Exit codes: as of `muster launch`.";

void DescribeEval(CLI::App& command, EvalOptions& options) {
  options.Add(command);
  options.config.AddShorthand(
      command, "--workers", "cluster.workers", "N",
      "Worker processes; default: one a core, at most 8; the digits are the same with any "
      "number");
  options.config.AddShorthand(command, "--devices", "worker.devices", "LIST",
                              "GPUs, one a worker, as of launch");
  AddWait(command, options.wait_minutes);
  command.add_flag("--confusion", options.confusion,
                   "How every class fares, also of many, and all counts");
  AddOption(command, "--confusion-csv", options.confusion_csv, "FILE",
            "The same, with all counts in FILE, as in a run's confusion_matrix.csv");
  command.footer(kEvalFooter);
}

int DoEval(const EvalOptions& options) {
  return RunEval({.source = options.source(),
                  .confusion = options.confusion || !options.confusion_csv.empty(),
                  .csv = options.confusion_csv,
                  .json = options.json,
                  .wait_s = 60 * options.wait_minutes.value_or(0),
                  .server_program = Sibling("muster-server"),
                  .worker_program = Sibling("muster-worker"),
                  .count_data = CountTestSamples});
}

}  // namespace

void AddEval(CLI::App& app, Action& action) {
  AddCommand<EvalOptions>(app, action, "eval",
                          "Evaluate a run's weights on the test or validation set", DescribeEval,
                          DoEval);
}

}  // namespace muster
