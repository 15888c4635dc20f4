// Draws the curves of runs as one SVG. Reads no files.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "cli/view/run_reader.h"

namespace muster {

enum class PlotAxis { kStep, kEpoch, kTime };

// Panels that every run may have. Each scalar of a program has one, too, by its name.
inline constexpr const char* kPanels[] = {"loss", "accuracy", "learning_rate",
                                          "samples_per_second"};

struct PlotLook {
  PlotAxis axis = PlotAxis::kStep;
  std::string title = {};
  // Names of panels. Empty: the first three of kPanels for which there are values.
  std::vector<std::string> panels = {};
  double width = 900;  // CSS pixels: 96 an inch
};

// What has one color: a run, or several with the same steps, as their mean and range.
struct PlottedRuns {
  std::string name;
  std::vector<RunRecord> runs;  // at least one
  std::string label = {};       // instead of the name and the result
};

std::string DrawPlot(const std::vector<PlottedRuns>& plotted, const PlotLook& look);
// Draws each run for itself.
std::string DrawRuns(const std::vector<RunRecord>& runs, PlotAxis axis = PlotAxis::kStep);

// The names of the scalars that the run has.
std::set<std::string> ScalarNames(const RunRecord& run);

}  // namespace muster
