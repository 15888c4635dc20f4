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
    "A file of torch.save is made a safetensors file first: the error says how.\n"
    "\n"
    "Exit codes: 0 done, 1 OUT cannot be written, 2 command line or config, or OUT is there "
    "already, 3 FILE cannot be read, is not finite, or does not fit the network.";

void DescribeImport(CLI::App& command, ImportOptions& options) {
  ImportArguments& arguments = options.arguments;
  command
      .add_option("FILE", arguments.file, "A safetensors file, such as PyTorch's save_file writes")
      ->required()
      ->type_name("PATH")
      ->check(SomeText());
  AddOut(command, arguments.out, arguments.force,
         "The file to write, for launch --initial-weights");
  AddOption(command, "--config", options.config.config, "CONFIG",
            "The config whose network the weights are for")
      ->required();
  options.config.AddShorthand(command, "--data", "data.dir", "DIR",
                              "The folder of photos, where it says the number of classes");
  options.config.AddSet(command, "Any setting of that config; may be repeated");
  AddOption(command, "--map", arguments.names, "NAMES",
            "A file with lines \"THEIRS OURS\": what variables, or all that begin with a name and "
            "a dot, are called "
            "here; OURS is - for what is to be left out");
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
                            "Make a file of PyTorch's weights fit a config's network",
                            DescribeImport, DoImport);
}

}  // namespace muster
