// `muster plot`: draws the curves of one or several runs.
#pragma once

#include <string>
#include <vector>

#include "cli/view/draw_runs.h"

namespace muster {

struct PlotArguments {
  std::vector<std::string> dirs;  // of runs, or of folders with runs
  // FILE.svg, .png or .pdf. "" means plot.svg in the directory, or in the current one for several.
  std::string output = {};
  PlotLook look = {};
  std::vector<std::string> labels = {};  // NAME=TEXT: a run or series, and what the legend says
  bool singly = false;                   // draw each seed of a series for itself
};

// Returns the exit code. Throws Error: kUsage if there is no such run, panel or label, the output
// has another suffix or there is no rsvg-convert, kFailure if the output cannot be written.
int PlotRuns(const PlotArguments& arguments);

}  // namespace muster
