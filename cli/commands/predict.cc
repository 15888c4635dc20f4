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
  uint32_t top = 3;  // number of classes to show
  bool csv = false;
};

constexpr const char* kPredictFooter =
    "For a network trained on photos (data.format IMAGE_FOLDER), IMAGE is a JPEG or PNG file, or a "
    "folder of such files at any depth. For a network trained on arrays (NPZ), it is a .npz file "
    "with an array x; its samples are shown as FILE[0], FILE[1] and so on. Images are preprocessed "
    "as in an evaluation; the data set is not needed. Each result is printed as soon as it is "
    "known, with --json as one object per line. Images that cannot be decoded are reported and "
    "skipped.\n"
    "\n"
    "One process computes everything; --samples gives the same bits as an evaluation. "
    "Probabilities are the softmax of the logits, or the sigmoid of each with "
    "sigmoid_cross_entropy.\n"
    "\n"
    "Examples:\n"
    "  muster predict runs/a cat.jpg holidays\n"
    "  muster predict runs/a holidays --top 1 --csv > holidays.csv\n"
    "  muster predict runs/a new.npz --csv > new.csv\n"
    "  muster predict runs/a --samples 0-9,17\n"
    "  muster predict runs/a --best --samples 0-31 --top 1 --json\n"
    "\n"
    "Exit codes: 0 done; 2 command line or config; 3 data, weights or an image cannot be read; 4 "
    "an output is not finite.";

void DescribePredict(CLI::App& command, PredictOptions& options) {
  options.Add(command);
  CLI::Option* const images =
      command.add_option("IMAGE", options.images, "Image files, folders of them, .npz files")
          ->type_name("PATH")
          ->check(SomeText());
  CLI::Option* const samples =
      command
          .add_option("--samples", options.samples,
                      "Use samples of the run's data set instead, counted from 0, such as 0-9,17")
          ->type_name("LIST")
          ->check(SomeText())
          ->excludes(images);
  command
      .add_flag(
          "--training-set", options.training_set,
          "Use the training set, without augmentation; default: the test set, or if there is none, "
          "the validation set")
      ->needs(samples);
  command.add_option("--top", options.top, "Number of classes to show per image")
      ->type_name("K")
      ->check(WholeNumber(1, 1'000'000))
      ->capture_default_str();
  command
      .add_flag("--csv", options.csv,
                "Print CSV (image,class,name,probability), one row per class shown")
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
  AddCommand<PredictOptions>(app, action, "predict", "Classify images with a trained network",
                             DescribePredict, DoPredict);
}

}  // namespace muster
