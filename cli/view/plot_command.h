// `muster plot`: the curves of one or several runs as a picture.
#pragma once

#include <string>
#include <vector>

#include "cli/view/run_reader.h"

namespace muster {

enum class PlotAxis { kStep, kEpoch, kTime };

// Loss, accuracy, learning rate and images per second in one picture, as SVG.
std::string DrawRuns(const std::vector<RunRecord>& runs, PlotAxis axis);

struct PlotArguments {
  std::vector<std::string> run_dirs;
  std::string output;  // FILE.svg; "": plot.svg, in the run directory of one run, here of several
  PlotAxis axis = PlotAxis::kStep;
};

// Throws Error(kUsage) for what is no run directory and for an output that is not named .svg,
// kFailure for what cannot be written. Returns the exit code.
int PlotRuns(const PlotArguments& arguments);

}  // namespace muster
