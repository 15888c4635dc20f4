#include "launch/plot/plot_command.h"

#include <fmt/core.h>

#include "common/base/atomic_file.h"
#include "common/base/error.h"
#include "launch/plot/png_canvas.h"
#include "launch/plot/svg_canvas.h"
#include "launch/text/console.h"
#include "launch/text/units.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

constexpr double kPngScale = 1.5;

std::string Draw(const std::string& file, const std::vector<RunRecord>& runs,
                 const PlotArguments& arguments) {
  const auto draw = [&](Canvas& canvas) {
    DrawRuns(runs, arguments.axis, canvas);
    return canvas.Finish();
  };
  if (file.ends_with(".svg")) {
    SvgCanvas canvas(kPlotSize.x, kPlotSize.y);
    return draw(canvas);
  }
  PngCanvas canvas(kPlotSize.x, kPlotSize.y, kPngScale, FontFile(arguments.program_folder));
  return draw(canvas);
}

// Of one run: into its directory. Of several: here.
std::vector<std::string> Files(const PlotArguments& arguments) {
  if (!arguments.output.empty()) return {arguments.output};
  const fs::path folder = arguments.run_dirs.size() == 1 ? arguments.run_dirs[0] : ".";
  return {(folder / "plot.svg").lexically_normal(), (folder / "plot.png").lexically_normal()};
}

}  // namespace

std::string FontFile(const fs::path& program_folder) {
  return program_folder.parent_path() / "share/muster/DejaVuSans.ttf";
}

int PlotRuns(const PlotArguments& arguments) {
  const std::vector<std::string> files = Files(arguments);
  for (const std::string& file : files) {
    if (!file.ends_with(".svg") && !file.ends_with(".png")) {
      throw Error(ExitCode::kUsage, "--output {}: expected a name that ends with .svg or .png",
                  file);
    }
  }
  std::vector<RunRecord> runs;
  for (const std::string& dir : arguments.run_dirs) {
    runs.push_back(ReadRun(dir));
    const RunRecord& run = runs.back();
    if (run.rows.empty()) {
      throw Error(ExitCode::kUsage, "{}: nothing to plot: no interval has been logged yet", dir);
    }
    if (run.unreadable_lines > 0) {
      PrintError(fmt::format("muster: warning: {}/metrics.jsonl: {} could not be read\n", dir,
                             Plural(run.unreadable_lines, "line")));
    }
  }
  for (const std::string& file : files) {
    WriteFileAtomically(file, Draw(file, runs, arguments));
    PrintResult("wrote " + file);
  }
  return 0;
}

}  // namespace muster
