// `muster weights get`.
#include "cli/commands/options.h"
#include "cli/data/download.h"
#include "common/base/error.h"
#include "common/base/text.h"

namespace muster {
namespace {

constexpr const char* kGetWeightsFooter =
    "The weights are torchvision's IMAGENET1K_V1 (BSD license), as safetensors. A config names the "
    "file as run.initial_weights.\n"
    "\n"
    "Examples:\n"
    "  muster weights get resnet18\n"
    "  muster launch configs/imagefolder_resnet18.txtpb --data photos\n"
    "  muster weights get resnet18 /shared/weights\n"
    "  muster launch configs/imagefolder_resnet18.txtpb --data photos \\\n"
    "      --initial-weights /shared/weights/resnet18.safetensors --skip-mismatched\n"
    "\n"
    "Exit codes: 0 done; 1 no network, or the folder cannot be written; 2 command line; 3 the "
    "folder holds another file of this name, or the download is not the published one.";

struct GetWeightsOptions {
  std::string network, dir = kWeightsFolder;
};

std::string Networks() {
  std::vector<std::string> names;
  for (const PublishedWeights& one : ImagenetWeights()) names.emplace_back(one.network);
  return Join(names, ", ");
}

void DescribeGetWeights(CLI::App& command, GetWeightsOptions& options) {
  command.add_option("NETWORK", options.network, Networks())->required()->type_name("NAME");
  command.add_option("DIR", options.dir, "The folder to put it in")
      ->type_name("PATH")
      ->capture_default_str();
  command.footer(kGetWeightsFooter);
}

int GetWeights(const GetWeightsOptions& options) {
  for (const PublishedWeights& one : ImagenetWeights()) {
    if (options.network != one.network) continue;
    DownloadWeights(options.dir, one);
    return 0;
  }
  throw Error(ExitCode::kUsage,
              "no published weights of '{}'; known: {}. Others: docs/PYTORCH.md, \"Other weights\"",
              options.network, Networks());
}

}  // namespace

void AddWeights(CLI::App& app, Action& action) {
  CLI::App& weights = *app.add_subcommand("weights", "Get published weights to start from");
  weights.require_subcommand(1);
  AddCommand<GetWeightsOptions>(weights, action, "get", "Download weights for ImageNet",
                                DescribeGetWeights, GetWeights);
}

}  // namespace muster
