// `muster plot`.
#include <cmath>

#include "cli/commands/options.h"
#include "cli/view/plot_command.h"
#include "common/base/error.h"

namespace muster {
namespace {

struct PlotOptions {
  std::vector<std::string> dirs{kLatest};
  std::string output, axis = "step", title;
  std::vector<std::string> panels, labels;
  double inches = 0;
  bool singly = false;
};

constexpr const char* kPlotFooter =
    "Examples:\n"
    "  muster plot runs/a\n"
    "  muster plot runs/a runs/b --axis time --output both.svg\n"
    "  muster plot runs/sweep --output sweep.pdf --width 3.25 --panels loss,accuracy\n"
    "  muster plot runs/a --panels loss,perplexity\n"
    "\n"
    "Dashed lines are the training, the others the validation or test set. Runs of one config with "
    "several seeds, such as those of --repeat, are drawn as their mean, in a band from the lowest "
    "to the highest.\n"
    "\n"
    "Exit codes: 0 done; 1 the output cannot be written; 2 command line, no such run, or no "
    "rsvg-convert; 3 metrics.jsonl is not a regular file; 5 rsvg-convert takes too long.";

void DescribePlot(CLI::App& command, PlotOptions& options) {
  command
      .add_option("RUN_DIR", options.dirs,
                  "The run directories, or folders with runs; latest: the newest one")
      ->type_name("PATH")
      ->default_str(kLatest);
  AddOption(command, "--output", options.output, "FILE",
            "Output file: .svg, or .png or .pdf, which rsvg-convert makes (Debian: librsvg2-bin); "
            "default: plot.svg in RUN_DIR, or in the current directory for several");
  command.add_option("--axis", options.axis, "Horizontal axis: step, epoch or time")
      ->type_name("NAME")
      ->check(OneOf({"step", "epoch", "time"}))
      ->capture_default_str();
  command
      .add_option(
          "--panels", options.panels,
          "What to draw: loss, accuracy, learning_rate, samples_per_second, or scalars of a "
          "program of your own; default: the first three")
      ->type_name("NAME,...")
      ->delimiter(',')
      ->allow_extra_args(false);
  AddOption(command, "--title", options.title, "TEXT", "A title above the legend");
  command
      .add_option("--label", options.labels,
                  "What the legend says instead of a name that it has; may be repeated")
      ->type_name("NAME=TEXT")
      ->expected(1)
      ->take_all();
  command
      .add_option(
          "--width", options.inches,
          "Width in inches; a column of a paper has about 3.25, and letters keep their size")
      ->type_name("INCHES")
      ->check(CLI::Range(2.5, 40.0));
  command.add_flag("--singly", options.singly, "Draw each seed of a config for itself");
  command.footer(kPlotFooter);
}

int DoPlot(const PlotOptions& options) {
  const PlotAxis axis = options.axis == "epoch"  ? PlotAxis::kEpoch
                        : options.axis == "time" ? PlotAxis::kTime
                                                 : PlotAxis::kStep;
  std::vector<std::string> dirs;
  for (const std::string& dir : options.dirs) dirs.push_back(RunNamed(dir));
  PlotLook look{.axis = axis, .title = options.title, .panels = options.panels};
  if (std::isnan(options.inches)) throw Error(ExitCode::kUsage, "--width nan: expected inches");
  if (options.inches > 0) look.width = 96 * options.inches;
  return PlotRuns({.dirs = dirs,
                   .output = options.output,
                   .look = look,
                   .labels = options.labels,
                   .singly = options.singly});
}

}  // namespace

void AddPlot(CLI::App& app, Action& action) {
  AddCommand<PlotOptions>(app, action, "plot", "Draw the curves of runs as SVG, PNG or PDF",
                          DescribePlot, DoPlot);
}

}  // namespace muster
