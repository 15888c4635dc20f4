// `muster data get`, `synth`, `check`, `show` and `whiten`.
#include <strings.h>

#include <limits>

#include "cli/commands/options.h"
#include "cli/data/check_command.h"
#include "cli/data/download.h"
#include "cli/data/show_command.h"
#include "cli/data/synthesize.h"
#include "cli/data/whiten_command.h"
#include "common/base/error.h"
#include "common/base/leading_zero.h"

namespace muster {
namespace {

constexpr uint64_t kMostImages = 1'000'000'000;  // 3 TB
constexpr int64_t kTrainFiles = 5;               // number of training files in CIFAR-10's layout

constexpr const char* kGetDataFooter =
    "Examples:\n"
    "  muster data get cifar10 data\n"
    "  muster data get mnist data/mnist\n"
    "  muster data get fashion-mnist data/fashion-mnist\n"
    "\n"
    "Exit codes: 0 done; 1 no network, or the folder cannot be written; 2 command line; 3 the "
    "folder holds another data set, or the download is not the published one.";

struct GetDataOptions {
  std::string dataset, dir;
};

void DescribeGetData(CLI::App& command, GetDataOptions& options) {
  command
      .add_option("DATASET", options.dataset,
                  "cifar10 (170 MB), mnist (12 MB) or fashion-mnist (31 MB)")
      ->required()
      ->type_name("NAME");
  command.add_option("DIR", options.dir, "The folder to put it in")->required()->type_name("PATH");
  command.footer(kGetDataFooter);
}

int GetData(const GetDataOptions& options) {
  if (::strcasecmp(options.dataset.c_str(), "cifar10") == 0) {
    DownloadCifar10(options.dir);
  } else if (::strcasecmp(options.dataset.c_str(), "mnist") == 0) {
    DownloadMnist(options.dir);
  } else if (::strcasecmp(options.dataset.c_str(), "fashion-mnist") == 0) {
    DownloadMnist(options.dir, FashionMnistFiles(), "Fashion-MNIST");
  } else {
    throw Error(ExitCode::kUsage, "unknown data set '{}'; known: cifar10, mnist, fashion-mnist",
                options.dataset);
  }
  return 0;
}

constexpr const char* kSynthFooter =
    "Examples:\n"
    "  muster data synth data --train 5000 --test 1000\n"
    "\n"
    "Exit codes: 0 done; 1 the folder cannot be written; 2 command line; 3 the folder holds "
    "another data set.";

struct SynthOptions {
  std::string dir;
  uint64_t seed = 1;
  int64_t train = 50000, test = 10000;
};

void DescribeSynth(CLI::App& command, SynthOptions& options) {
  command.add_option("DIR", options.dir, "The folder to put it in")->required()->type_name("PATH");
  command.add_option("--seed", options.seed, "Seed of the images")
      ->type_name("N")
      ->check(WholeNumber(0, std::numeric_limits<uint64_t>::max()))
      ->capture_default_str();
  command.add_option("--train", options.train, "Number of training images, a multiple of 5")
      ->type_name("N")
      ->check(WholeNumber(1, kMostImages))
      ->capture_default_str();
  command.add_option("--test", options.test, "Number of test images")
      ->type_name("N")
      ->check(WholeNumber(1, kMostImages))
      ->capture_default_str();
  command.footer(kSynthFooter);
}

int Synthesize(const SynthOptions& options) {
  if (options.train % kTrainFiles != 0) {
    throw Error(ExitCode::kUsage, "--train {}: expected a multiple of {}, the number of files",
                options.train, kTrainFiles);
  }
  SynthesizeCifar10(options.dir, options.seed, options.train / kTrainFiles, options.test);
  return 0;
}

constexpr const char* kCheckFooter =
    "DIR has the layout of data.format IMAGE_FOLDER: train/CLASS and val/CLASS, or CLASS. Every "
    "image is fully decoded. Errors would stop training: files that cannot be decoded, and sets "
    "whose classes differ. An image that appears in several classes, or in both sets, is "
    "suspicious. Everything else is a note.\n"
    "\n"
    "Examples:\n"
    "  muster data check photos --write-exclusions left-out.txt\n"
    "  muster data check photos --exclude left-out.txt\n"
    "  muster launch configs/imagefolder_resnet18.txtpb --data photos \\\n"
    "      --set data.image_folder.exclude=left-out.txt\n"
    "\n"
    "Exit codes: 0 training would work; 1 it would, but something is suspicious, or a file cannot "
    "be written; 2 command line; 3 training would stop.";

void DescribeCheck(CLI::App& command, CheckArguments& arguments) {
  command.add_option("DIR", arguments.dir, "The folder with the images")
      ->required()
      ->type_name("PATH");
  AddOption(command, "--exclude", arguments.exclude, "FILE",
            "Skip the images listed in FILE, as data.image_folder.exclude does");
  AddOption(command, "--write-exclusions", arguments.write_exclusions, "FILE",
            "Write such a list to FILE: damaged files, duplicates, and the images of --exclude");
  command.add_flag("--json", arguments.json, "Print JSON instead of text, with all problems");
  command.footer(kCheckFooter);
}

struct ShowOptions {
  ConfigOptions config;
  std::string output;
  int64_t samples = 8, epoch = 0;
};

constexpr const char* kShowFooter =
    "Draws a row for each of the first training samples of an epoch: first as an evaluation sees "
    "it, then as training sees it in five epochs, with random augmentation. Colors are shown "
    "before normalization with data.preprocess.mean and stddev, and without mixup. An existing "
    "SVG file is replaced.\n"
    "\n"
    "Examples:\n"
    "  muster data show configs/imagefolder_resnet18.txtpb --data photos \\\n"
    "      --output samples.svg\n"
    "  muster data show configs/smoke.txtpb --set data.preprocess.flip=true \\\n"
    "      --output samples.svg\n"
    "\n"
    "Exit codes: 0 done; 1 the file cannot be written; 2 command line or config; 3 data.";

void DescribeShow(CLI::App& command, ShowOptions& options) {
  options.config.AddConfig(command);
  options.config.AddShorthand(command, "--data", "data.dir", "DIR", "Data directory (data.dir)");
  AddOption(command, "--output", options.output, "FILE.svg", "The file to write")->required();
  command.add_option("--samples", options.samples, "Number of samples")
      ->type_name("N")
      ->check(WholeNumber(1, 1000))
      ->capture_default_str();
  command.add_option("--epoch", options.epoch, "The first epoch, counted from 0")
      ->type_name("E")
      ->check(WholeNumber(0, 1'000'000))
      ->capture_default_str();
  command.footer(kShowFooter);
}

int DrawSamples(const ShowOptions& options) {
  return RunShow({.config_path = options.config.path(),
                  .settings = options.config.settings(),
                  .output = options.output,
                  .samples = options.samples,
                  .epoch = options.epoch});
}

struct WhitenOptions {
  ConfigOptions config;
  WhitenArguments arguments;
};

constexpr const char* kWhitenFooter =
    "The filters are the eigenvectors of the covariance of image patches, each divided by the "
    "deviation along it, and their negatives. Networks that begin with them, fixed by "
    "learning_rate_multiplier 0, need fewer epochs. The layer must read the images and have two "
    "filters for each number of a patch: 24 for 2 x 2 pixels of 3 channels. An existing file is "
    "replaced.\n"
    "\n"
    "Examples:\n"
    "  muster data whiten configs/cifar10_fast.txtpb --data data \\\n"
    "      --output whiten.safetensors\n"
    "\n"
    "Exit codes: 0 done; 1 the file cannot be written; 2 command line or config; 3 data.";

void DescribeWhiten(CLI::App& command, WhitenOptions& options) {
  options.config.AddConfig(command);
  options.config.AddShorthand(command, "--data", "data.dir", "DIR", "Data directory (data.dir)");
  WhitenArguments& arguments = options.arguments;
  AddOption(command, "--output", arguments.output, "FILE", "The safetensors file to write")
      ->required();
  AddOption(command, "--layer", arguments.layer, "NAME",
            "The convolution; default: the network's first");
  command.add_option("--samples", arguments.samples, "Number of training samples to measure")
      ->type_name("N")
      ->check(WholeNumber(1, 1'000'000'000))
      ->capture_default_str();
  command.add_option("--epsilon", arguments.epsilon, "Added to the variances, against noise")
      ->type_name("X")
      ->check(LeadingZeroTrouble, "")
      ->check(CLI::Range(1e-12, 1e12))
      ->capture_default_str();
  command.footer(kWhitenFooter);
}

int Whiten(const WhitenOptions& options) {
  WhitenArguments arguments = options.arguments;
  arguments.config_path = options.config.path();
  arguments.settings = options.config.settings();
  return RunWhiten(arguments);
}

}  // namespace

void AddData(CLI::App& app, Action& action) {
  CLI::App* const data = app.add_subcommand("data", "Download, generate, check or show data");
  data->require_subcommand(1);
  AddCommand<GetDataOptions>(*data, action, "get", "Download a published data set", DescribeGetData,
                             GetData);
  AddCommand<SynthOptions>(*data, action, "synth",
                           "Generate images in CIFAR-10's layout, for work without a network",
                           DescribeSynth, Synthesize);
  AddCommand<CheckArguments>(*data, action, "check",
                             "Decode all images of a folder and report problems", DescribeCheck,
                             RunCheck);
  AddCommand<ShowOptions>(*data, action, "show", "Draw training samples as the network sees them",
                          DescribeShow, DrawSamples);
  AddCommand<WhitenOptions>(*data, action, "whiten",
                            "Compute weights of a first convolution from the training images",
                            DescribeWhiten, Whiten);
}

}  // namespace muster
