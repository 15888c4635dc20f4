// The curves of runs: loss, accuracy, learning rate and images per second, in one picture.
#pragma once

#include <string>
#include <vector>

#include "launch/plot/canvas.h"
#include "launch/runs/run_record.h"

namespace muster {

enum class PlotAxis { kStep, kEpoch, kTime };

inline constexpr Point kPlotSize{1040, 720};

// The whole picture, of kPlotSize.
void DrawRuns(const std::vector<RunRecord>& runs, PlotAxis axis, Canvas& canvas);

}  // namespace muster
