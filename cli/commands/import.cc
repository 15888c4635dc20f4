// `muster import`.
#include "cli/commands/options.h"
#include "cli/model/import_command.h"
#include "cli/text/console.h"

namespace muster {
namespace {

struct ImportOptions {
  ImportArguments arguments;
  ConfigOptions config;
};

constexpr const char* kImportFooter =
    "Examples:\n"
    "  muster import theirs.safetensors --config configs/cifar10.txtpb \\\n"
    "      ours.safetensors\n"
    "  muster import theirs.safetensors --config configs/cifar10.txtpb \\\n"
    "      --skip-mismatched body.safetensors\n"
    "  muster launch configs/cifar10.txtpb --data data \\\n"
    "      --initial-weights ours.safetensors\n"
    "\n"
    "Convert a file written by torch.save to safetensors first; the error message shows how.\n"
    "\n"
    "Exit codes: 0 done; 1 OUT cannot be written; 2 command line or config, or OUT exists; 3 FILE "
    "cannot be read, has values that are not finite, or does not fit the network.";

void DescribeImport(CLI::App& command, ImportOptions& options) {
  ImportArguments& arguments = options.arguments;
  command
      .add_option("FILE", arguments.file, "A safetensors file, as written by PyTorch's save_file")
      ->required()
      ->type_name("PATH")
      ->check(SomeText());
  AddOut(command, arguments.out, arguments.force,
         "The file to write, for launch --initial-weights");
  AddOption(command, "--config", options.config.config, "CONFIG",
            "The config whose network the weights are for")
      ->required();
  options.config.AddShorthand(command, "--data", "data.dir", "DIR",
                              "Data directory, if the number of classes depends on it");
  options.config.AddSet(command, "Change any setting of that config; may be repeated");
  AddOption(command, "--map", arguments.names, "NAMES",
            "A file with lines \"THEIRS OURS\" that rename variables, or all variables that begin "
            "with THEIRS and a dot; OURS is - to leave them out");
  AddOption(command, "--strip-prefix", arguments.prefix, "PREFIX",
            "Remove this from the names that begin with it, such as module. or _orig_mod., which "
            "PyTorch's wrappers add");
  AddSkipMismatched(command, arguments.skip_mismatched);
  command.footer(kImportFooter);
}

int DoImport(const ImportOptions& options) {
  ImportArguments arguments = options.arguments;
  arguments.config_path = options.config.path();
  arguments.settings = options.config.settings();
  PrintResult(ImportModel(arguments));
  return 0;
}

}  // namespace

void AddImport(CLI::App& app, Action& action) {
  AddCommand<ImportOptions>(app, action, "import",
                            "Convert PyTorch's weights to fit a config's network", DescribeImport,
                            DoImport);
}

}  // namespace muster
