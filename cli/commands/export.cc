// `muster export`.
#include "cli/commands/options.h"
#include "cli/model/export_command.h"
#include "cli/text/console.h"
#include "common/base/error.h"
#include "common/base/text.h"

namespace muster {
namespace {

struct ExportOptions {
  ExportArguments arguments;
  ConfigOptions config;
};

constexpr const char* kExportFooter =
    "In a run directory, uses best.safetensors if a validation set chose it, else "
    "model.safetensors, "
    "or the newest checkpoint if it has more steps.\n"
    "\n"
    "Examples:\n"
    "  muster export runs/a weights.npz\n"
    "  muster export runs/a --best model.onnx\n"
    "\n"
    "Exit codes: 0 done; 1 OUT cannot be written; 2 command line or config, or OUT exists; 3 the "
    "weights cannot be read, or do not fit the network.";

const std::vector<std::string> kFormats{"safetensors", "npz", "onnx"};

std::string FormatOf(const std::string& out) {
  for (const std::string& format : kFormats) {
    if (out.ends_with("." + format)) return format;
  }
  throw Error(ExitCode::kUsage,
              "{}: expected a name that ends in .{}, or --format (see muster export --help)", out,
              Join(kFormats, ", ."));
}

void DescribeExport(CLI::App& command, ExportOptions& options) {
  ExportArguments& arguments = options.arguments;
  AddFrom(command, arguments.from);
  AddChoice(command, arguments.choice);
  AddOut(command, arguments.out, arguments.force, "The file to write");
  command
      .add_option("--format", arguments.format,
                  "safetensors, npz (NumPy) or onnx; default: as the name of OUT ends")
      ->type_name("FORMAT")
      ->check(OneOf(kFormats));
  CLI::Option* const config = AddOption(command, "--config", options.config.config, "CONFIG",
                                        "Config of the network, for onnx, if the file has none");
  options.config.AddSet(command, "Change any setting of that config; may be repeated")
      ->needs(config);
  command.footer(kExportFooter);
}

int DoExport(const ExportOptions& options) {
  ExportArguments arguments = options.arguments;
  if (arguments.format.empty()) arguments.format = FormatOf(arguments.out);
  arguments.from = RunNamed(arguments.from);
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
