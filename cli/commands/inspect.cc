// `muster inspect`.
#include <sstream>

#include "cli/commands/options.h"
#include "cli/model/inspect_command.h"
#include "cli/model/inspect_model.h"
#include "cli/text/console.h"
#include "common/base/error.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

struct InspectOptions {
  ConfigOptions config;
  ModelChoice choice;
  bool show_config = false;
};

constexpr const char* kInspectFooter =
    "For a config, shows its layers, variables, chunks and the work of a step. For a run "
    "directory, shows the state of the run and the weights in it. For weights, shows variables, "
    "shapes, norms, values that are not finite, and the file's metadata. For a checkpoint without "
    "--ema or --raw, shows every tensor, the optimizer's state included, and verifies all "
    "checksums.\n"
    "\n"
    "Examples:\n"
    "  muster inspect configs/cifar10.txtpb --set run.global_batch=512\n"
    "  muster inspect runs/a --best\n"
    "  muster inspect runs/a/checkpoints/step-00000390-g1-evaluated\n"
    "  muster inspect runs/a/model.safetensors --config\n"
    "\n"
    "Exit codes: 0 done; 2 command line or config; 3 the weights cannot be read.";

void DescribeInspect(CLI::App& command, InspectOptions& options) {
  options.config.AddConfig(command)
      ->description(
          "A config (configs/*.txtpb), a run directory (latest: the newest one), a checkpoint (a "
          "folder "
          "in RUN_DIR/checkpoints), or a safetensors file")
      ->type_name("PATH");
  command.get_option("--set")->description("Change any setting of a config; may be repeated");
  command.add_flag("--config", options.show_config, "Print only the config that weights come with");
  AddChoice(command, options.choice);
  command.footer(kInspectFooter);
}

int InspectWeights(const InspectOptions& options, const std::string& path) {
  if (!options.config.settings().empty()) {
    throw Error(ExitCode::kUsage, "--set: {} is not a config and has no settings", path);
  }
  if (options.show_config) {
    std::istringstream text(ConfigTextIn(path, options.choice));
    for (std::string line; std::getline(text, line);) PrintResult(line);
    return 0;
  }
  const Inspected inspected = InspectSource(path, options.choice, ResultWidth());
  PrintRows(inspected.lines);
  if (inspected.trouble) throw Error(*inspected.trouble);
  return 0;
}

int DoInspect(const InspectOptions& options) {
  const std::string path =
      options.config.config == kLatest ? RunNamed(kLatest) : options.config.path();
  if (IsModel(path)) return InspectWeights(options, path);
  for (const auto& [given, option] :
       {std::pair(options.show_config, "--config"), std::pair(options.choice.average, "--ema"),
        std::pair(options.choice.raw, "--raw"), std::pair(options.choice.best, "--best")}) {
    if (!given) continue;
    throw Error(ExitCode::kUsage,
                "{}: {} is a config, expected a run directory, a checkpoint or a file of weights",
                option, path);
  }
  PrintRows(InspectLines(LoadConfig(path, options.config.settings()), ResultWidth()));
  return 0;
}

}  // namespace

void AddInspect(CLI::App& app, Action& action) {
  AddCommand<InspectOptions>(app, action, "inspect", "Show a config's network, or a run's weights",
                             DescribeInspect, DoInspect);
}

}  // namespace muster
