// `muster predict`.
#include "cli/commands/evaluation_options.h"
#include "cli/data/count_samples.h"
#include "cli/evaluate/predict_command.h"

namespace muster {
namespace {

struct PredictOptions : EvaluationOptions {
  std::string samples;
  bool training_set = false;
  uint32_t top = 3;  // classes
};

constexpr const char* kPredictFooter =
    "One process computes them, with the bits of an evaluation. Probabilities are the "
    "softmax of the logits.\n"
    "\n"
    "Examples:\n"
    "  muster predict runs/a --samples 0-9,17\n"
    "  muster predict runs/a --best --samples 0-31 --top 1 --json\n"
    "\n"
    "Exit codes: 0 done, 2 command line or config, 3 data or weights, 4 outputs that "
    "are not finite.";

void DescribePredict(CLI::App& command, PredictOptions& options) {
  options.Add(command);
  command.add_option("--samples", options.samples, "Which, counted from 0: 0-9,17")
      ->required()
      ->type_name("LIST")
      ->check(SomeText());
  command.add_flag("--training-set", options.training_set,
                   "Samples of the training set, without augmentation; default: the test set");
  command.add_option("--top", options.top, "How many classes to show of each")
      ->type_name("K")
      ->check(WholeNumber(1, 1'000'000))
      ->capture_default_str();
  command.footer(kPredictFooter);
}

int DoPredict(const PredictOptions& options) {
  return RunPredict({.source = options.source(),
                     .samples = options.samples,
                     .training_set = options.training_set,
                     .top = options.top,
                     .json = options.json,
                     .worker_program = Sibling("muster-worker"),
                     .count_data = options.training_set ? CountSamples : CountTestSamples});
}

}  // namespace

void AddPredict(CLI::App& app, Action& action) {
  AddCommand<PredictOptions>(app, action, "predict", "Show what a network makes of single samples",
                             DescribePredict, DoPredict);
}

}  // namespace muster
