// `muster plot`: draws the curves of one or several runs.
#pragma once

#include <string>
#include <vector>

#include "cli/view/run_reader.h"

namespace muster {

enum class PlotAxis { kStep, kEpoch, kTime };

// Returns one SVG with loss, accuracy, learning rate and images per second. `scalar`: draws this
// scalar of a program instead of the accuracy.
std::string DrawRuns(const std::vector<RunRecord>& runs, PlotAxis axis,
                     const std::string& scalar = "");

struct PlotArguments {
  std::vector<std::string> run_dirs;
  // FILE.svg. "" means plot.svg in the run directory, or in the current one for several runs.
  std::string output;
  PlotAxis axis = PlotAxis::kStep;
  std::string scalar = {};  // "": none
};

// Returns the exit code. Throws Error: kUsage if a path is not a run directory, the output is not
// named .svg or no run has the scalar, kFailure if the output cannot be written.
int PlotRuns(const PlotArguments& arguments);

}  // namespace muster
