// `muster export`.
#include "cli/commands/options.h"
#include "cli/model/export_command.h"
#include "cli/text/console.h"

namespace muster {
namespace {

struct ExportOptions {
  ExportArguments arguments;
  ConfigOptions config;
};

constexpr const char* kExportFooter =
    "In a run directory, uses model.safetensors, or the newest checkpoint if it has more steps.\n"
    "\n"
    "Examples:\n"
    "  muster export runs/a --format npz weights.npz\n"
    "  muster export runs/a --best --format onnx model.onnx\n"
    "\n"
    "Exit codes: 0 done; 1 OUT cannot be written; 2 command line or config, or OUT exists; 3 the "
    "weights cannot be read, or do not fit the network.";

void DescribeExport(CLI::App& command, ExportOptions& options) {
  ExportArguments& arguments = options.arguments;
  AddFrom(command, arguments.from);
  AddChoice(command, arguments.choice);
  AddOut(command, arguments.out, arguments.force, "The file to write");
  command.add_option("--format", arguments.format, "safetensors, npz (NumPy) or onnx")
      ->required()
      ->type_name("FORMAT")
      ->check(OneOf({"safetensors", "npz", "onnx"}));
  CLI::Option* const config = AddOption(command, "--config", options.config.config, "CONFIG",
                                        "Config of the network, for onnx, if the file has none");
  options.config.AddSet(command, "Change any setting of that config; may be repeated")
      ->needs(config);
  command.footer(kExportFooter);
}

int DoExport(const ExportOptions& options) {
  ExportArguments arguments = options.arguments;
  arguments.config_path = options.config.path();
  arguments.settings = options.config.settings();
  PrintResult(ExportModel(arguments));
  return 0;
}

}  // namespace

void AddExport(CLI::App& app, Action& action) {
  AddCommand<ExportOptions>(app, action, "export",
                            "Write a run's weights as safetensors, npz or onnx", DescribeExport,
                            DoExport);
}

}  // namespace muster
