// The curves of runs: loss, accuracy, learning rate and images per second, in one picture.
#pragma once

#include <string>
#include <vector>

#include "cli/view/run_record.h"

namespace muster {

enum class PlotAxis { kStep, kEpoch, kTime };

// The whole picture, as SVG.
std::string DrawRuns(const std::vector<RunRecord>& runs, PlotAxis axis);

}  // namespace muster
