// `muster plot`.
#include "cli/commands/options.h"
#include "cli/view/plot_command.h"

namespace muster {
namespace {

struct PlotOptions {
  std::vector<std::string> run_dirs{kLatest};
  std::string output, axis = "step", scalar;
};

constexpr const char* kPlotFooter =
    "Examples:\n"
    "  muster plot runs/a\n"
    "  muster plot runs/a runs/b --axis time --output both.svg\n"
    "  muster plot runs/a --scalar perplexity\n"
    "\n"
    "Exit codes: 0 done; 1 the output cannot be written; 2 command line, or no such run; 3 "
    "metrics.jsonl is not a regular file.";

void DescribePlot(CLI::App& command, PlotOptions& options) {
  command.add_option("RUN_DIR", options.run_dirs, "The run directories; latest: the newest one")
      ->type_name("PATH")
      ->default_str(kLatest);
  AddOption(command, "--output", options.output, "FILE",
            "Output file (.svg); default: plot.svg in the run directory, or in the current one for "
            "several runs");
  command.add_option("--axis", options.axis, "Horizontal axis: step, epoch or time")
      ->type_name("NAME")
      ->check(OneOf({"step", "epoch", "time"}))
      ->capture_default_str();
  AddOption(command, "--scalar", options.scalar, "NAME",
            "Draw this scalar or metric (top5_accuracy) instead of the accuracy");
  command.footer(kPlotFooter);
}

int DoPlot(const PlotOptions& options) {
  const PlotAxis axis = options.axis == "epoch"  ? PlotAxis::kEpoch
                        : options.axis == "time" ? PlotAxis::kTime
                                                 : PlotAxis::kStep;
  std::vector<std::string> run_dirs;
  for (const std::string& dir : options.run_dirs) run_dirs.push_back(RunNamed(dir));
  return PlotRuns(
      {.run_dirs = run_dirs, .output = options.output, .axis = axis, .scalar = options.scalar});
}

}  // namespace

void AddPlot(CLI::App& app, Action& action) {
  AddCommand<PlotOptions>(app, action, "plot", "Draw the curves of runs as SVG", DescribePlot,
                          DoPlot);
}

}  // namespace muster
