// `muster plot`: the curves of one or several runs as pictures.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "launch/plot/run_charts.h"

namespace muster {

struct PlotArguments {
  std::vector<std::string> run_dirs;
  std::string output;  // FILE.svg or FILE.png; "": both, plot.svg and plot.png
  PlotAxis axis = PlotAxis::kStep;
  std::filesystem::path program_folder;  // the font is installed beside it
};

// Where the font of pictures is, in an installation and in a build folder alike.
std::string FontFile(const std::filesystem::path& program_folder);

// Throws Error(kUsage) for what is no run directory and for a name that ends otherwise, kFailure
// for what cannot be written. Returns the exit code.
int PlotRuns(const PlotArguments& arguments);

}  // namespace muster
