// `muster predict`.
#include "cli/commands/evaluation_options.h"
#include "cli/data/count_samples.h"
#include "cli/evaluate/predict_command.h"
#include "common/base/error.h"

namespace muster {
namespace {

struct PredictOptions : EvaluationOptions {
  std::vector<std::string> images;
  std::string samples;
  bool training_set = false;
  uint32_t top = 3;  // classes
  bool csv = false;
};

constexpr const char* kPredictFooter =
    "Images are JPEG and PNG files, and folders of them at any depth, for a network that was "
    "trained on photos (data.format IMAGE_FOLDER). For one that was trained on arrays (NPZ), they "
    "are .npz files with an array x, whose samples are shown as FILE[0], FILE[1] and so on. They "
    "become the network's input as in an evaluation; the data set need not be there. Each is shown "
    "as soon as it is known, with --json as an object for each line. An image that cannot be "
    "decoded is named, and the others are shown.\n"
    "\n"
    "One process computes all, samples with the bits of an evaluation. Probabilities are the "
    "softmax of the logits, or with sigmoid_cross_entropy the sigmoid of each.\n"
    "\n"
    "Examples:\n"
    "  muster predict runs/a cat.jpg holidays\n"
    "  muster predict runs/a holidays --top 1 --csv > holidays.csv\n"
    "  muster predict runs/a new.npz --csv > new.csv\n"
    "  muster predict runs/a --samples 0-9,17\n"
    "  muster predict runs/a --best --samples 0-31 --top 1 --json\n"
    "\n"
    "Exit codes: 0 done, 2 command line or config, 3 data or weights, or an image that cannot be "
    "read, 4 outputs that are not finite.";

void DescribePredict(CLI::App& command, PredictOptions& options) {
  options.Add(command);
  CLI::Option* const images =
      command.add_option("IMAGE", options.images, "Image files, folders of them, .npz files")
          ->type_name("PATH")
          ->check(SomeText());
  CLI::Option* const samples =
      command
          .add_option("--samples", options.samples,
                      "Instead: samples of the run's data set, counted from 0: 0-9,17")
          ->type_name("LIST")
          ->check(SomeText())
          ->excludes(images);
  command
      .add_flag(
          "--training-set", options.training_set,
          "Samples of the training set, without augmentation; default: the test set, or else the "
          "validation set")
      ->needs(samples);
  command.add_option("--top", options.top, "How many classes to show of each")
      ->type_name("K")
      ->check(WholeNumber(1, 1'000'000))
      ->capture_default_str();
  command
      .add_flag("--csv", options.csv,
                "Print image,class,name,probability, a row for each class shown")
      ->needs(images)
      ->excludes(command.get_option("--json"));
  command.footer(kPredictFooter);
}

int DoPredict(const PredictOptions& options) {
  if (options.images.empty() && options.samples.empty()) {
    throw Error(ExitCode::kUsage, "expected images, or --samples (see muster predict --help)");
  }
  return RunPredict({.source = options.source(),
                     .images = options.images,
                     .samples = options.samples,
                     .training_set = options.training_set,
                     .top = options.top,
                     .json = options.json,
                     .csv = options.csv,
                     .worker_program = Sibling("muster-worker"),
                     .count_data = options.training_set ? CountSamples : CountTestSamples});
}

}  // namespace

void AddPredict(CLI::App& app, Action& action) {
  AddCommand<PredictOptions>(app, action, "predict", "Show what a network makes of images",
                             DescribePredict, DoPredict);
}

}  // namespace muster
