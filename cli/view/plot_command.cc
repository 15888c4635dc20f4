#include "cli/view/plot_command.h"

#include <fmt/core.h>

#include <filesystem>

#include "cli/text/console.h"
#include "cli/text/units.h"
#include "common/base/atomic_file.h"
#include "common/base/error.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

std::string OutputFile(const PlotArguments& arguments) {
  if (arguments.output.empty()) {
    const fs::path folder = arguments.run_dirs.size() == 1 ? arguments.run_dirs[0] : ".";
    return (folder / "plot.svg").lexically_normal();
  }
  if (!arguments.output.ends_with(".svg")) {
    throw Error(ExitCode::kUsage, "--output {}: plots are SVG only; name it .svg",
                arguments.output);
  }
  return arguments.output;
}

}  // namespace

int PlotRuns(const PlotArguments& arguments) {
  const std::string file = OutputFile(arguments);
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
  WriteFileAtomically(file, DrawRuns(runs, arguments.axis));
  PrintResult("wrote " + file);
  return 0;
}

}  // namespace muster
