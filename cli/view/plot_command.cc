#include "cli/view/plot_command.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "cli/text/console.h"
#include "cli/text/units.h"
#include "cli/view/chart.h"
#include "cli/view/convert_svg.h"
#include "common/base/atomic_file.h"
#include "common/base/error.h"
#include "common/base/file.h"
#include "common/base/text.h"
#include "common/config/config.h"
#include "common/config/resolved.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

std::string OutputFile(const PlotArguments& arguments) {
  const fs::path folder = arguments.dirs.size() == 1 ? arguments.dirs[0] : ".";
  std::string path = arguments.output.empty() ? (folder / "plot.svg").lexically_normal().string()
                                              : arguments.output;
  for (const auto& [suffix, beginning] :
       {std::pair(".svg", kSvgBeginning), std::pair(".png", "\x89PNG"),
        std::pair(".pdf", "%PDF")}) {
    if (!path.ends_with(suffix)) continue;
    RequireReplaceable("--output", path, beginning);
    return path;
  }
  throw Error(ExitCode::kUsage, "--output {}: expected a name that ends in .svg, .png or .pdf",
              path);
}

void WarnOfRun(const std::string& what) { PrintError(fmt::format("muster: warning: {}\n", what)); }

// Adds the run in the directory or, if it is none, those in the folder.
void AddRuns(const std::string& dir, std::vector<RunRecord>& runs) {
  std::error_code ignored;
  std::vector<RunRecord> found;
  if (!IsRunDir(dir) && fs::is_directory(dir, ignored)) {
    std::vector<std::string> troubles;
    found = FindRuns(dir, troubles);
    for (const std::string& trouble : troubles) WarnOfRun(trouble + ": skipping this run");
  } else {
    found.push_back(ReadRun(dir));
  }
  for (RunRecord& run : found) {
    if (run.unreadable_lines > 0) {
      WarnOfRun(fmt::format("{}: {} of its metrics could not be read", run.dir,
                            Plural(run.unreadable_lines, "line")));
    }
    if (!run.rows.empty()) runs.push_back(std::move(run));
  }
}

// Runs of the same name in several folders get their paths as names.
void NameApart(std::vector<RunRecord>& runs) {
  std::map<std::string, std::set<std::string>> dirs;
  for (const RunRecord& run : runs) dirs[run.name].insert(run.dir);
  for (RunRecord& run : runs) {
    if (dirs[run.name].size() > 1) run.name = fs::path(run.dir).lexically_normal();
  }
}

struct SeriesKey {
  std::string config;  // the same for runs that differ only in their seed
  uint64_t seed = 0;
  bool operator<(const SeriesKey& other) const {
    return std::tie(config, seed) < std::tie(other.config, other.seed);
  }
};

// Empty if the run is incomplete, or its config cannot be read.
SeriesKey SeriesOf(const RunRecord& run) {
  if (run.state != RunState::kCompleted) return {};
  const std::string path = run.dir + "/config.txtpb";
  try {
    config::Config config = ParseConfigText(ReadFileIfThere(path), path);
    const uint64_t seed = config.run().seed();
    config.mutable_run()->clear_seed();
    config.mutable_run()->clear_dir();
    // The seed chooses the samples whose mean is measured.
    const config::Preprocess written = WrittenIn(path).data().preprocess();
    if (written.has_measure_mean_stddev() && written.mean_size() + written.stddev_size() == 0) {
      config.mutable_data()->mutable_preprocess()->clear_mean();
      config.mutable_data()->mutable_preprocess()->clear_stddev();
    }
    return {ConfigText(config), seed};
  } catch (const Error&) {
    return {};
  }
}

// What the names of the runs have in common: runs/a/seed-1, runs/a/seed-2: a.
std::string SeriesName(const std::vector<RunRecord>& runs) {
  std::string name = runs.front().name;
  for (const RunRecord& run : runs) {
    name.resize(static_cast<size_t>(std::ranges::mismatch(name, run.name).in1 - name.begin()));
  }
  const size_t folder = name.rfind('/');
  name.resize(std::min(name.size(), name.find_last_of(folder == name.npos ? "-_." : "/")));
  if (!name.empty() && name != "seed") return name;
  return fs::absolute(runs.front().dir + "/..").lexically_normal().parent_path().filename();
}

std::vector<PlottedRuns> Grouped(std::vector<RunRecord> runs, bool singly) {
  std::vector<PlottedRuns> plotted;
  std::map<std::string, size_t> series;
  std::set<SeriesKey> seen;
  for (RunRecord& run : runs) {
    SeriesKey key = singly || runs.size() == 1 ? SeriesKey() : SeriesOf(run);
    if (!seen.insert(key).second) key = {};  // the same run again
    const auto known = series.find(key.config);
    if (known != series.end()) {
      plotted[known->second].runs.push_back(std::move(run));
      continue;
    }
    if (!key.config.empty()) series[key.config] = plotted.size();
    plotted.push_back({run.name, {}});
    plotted.back().runs.push_back(std::move(run));
  }
  std::map<std::string, int> named;
  for (PlottedRuns& one : plotted) {
    if (one.runs.size() > 1) one.name = SeriesName(one.runs);
    ++named[one.name];
  }
  for (PlottedRuns& one : plotted) {
    if (named[one.name] > 1) one.name = one.runs.front().name;
  }
  return plotted;
}

// Sets the label of the run or series that it names.
void SetLabel(const std::string& label, std::vector<PlottedRuns>& plotted) {
  std::vector<std::string> names;
  PlottedRuns* named = nullptr;
  size_t longest = 0;  // a name may have a "=", too
  for (PlottedRuns& one : plotted) {
    names.push_back(one.name);
    for (const std::string& name : {one.name, one.runs.front().dir}) {
      if (!label.starts_with(name + "=") || name.size() < longest) continue;
      named = &one;
      longest = name.size();
    }
  }
  if (named != nullptr) {
    named->label = label.substr(longest + 1);
    return;
  }
  throw Error(ExitCode::kUsage, "--label {}: expected NAME=TEXT, with one of these names: {}",
              label, Join(names, ", "));
}

void CheckPanels(const std::vector<std::string>& panels, const std::vector<RunRecord>& runs) {
  std::set<std::string> known(std::begin(kPanels), std::end(kPanels));
  for (const RunRecord& run : runs) known.merge(ScalarNames(run));
  for (const std::string& panel : panels) {
    if (known.contains(panel)) continue;
    throw Error(ExitCode::kUsage, "--panels {}: no such panel; these runs have: {}", panel,
                Join(known, ", "));
  }
}

}  // namespace

int PlotRuns(const PlotArguments& arguments) {
  const std::string file = OutputFile(arguments);
  std::vector<RunRecord> runs;
  for (const std::string& dir : arguments.dirs) AddRuns(dir, runs);
  if (runs.empty()) {
    throw Error(ExitCode::kUsage,
                "{}: nothing to plot: expected runs, or folders with runs, that have logged an "
                "interval",
                Join(arguments.dirs, ", "));
  }
  NameApart(runs);
  CheckPanels(arguments.look.panels, runs);
  std::vector<PlottedRuns> plotted = Grouped(std::move(runs), arguments.singly);
  for (const std::string& label : arguments.labels) SetLabel(label, plotted);
  std::string picture = DrawPlot(plotted, arguments.look);
  if (!file.ends_with(".svg")) picture = ConvertSvg(picture, file.substr(file.size() - 3));
  WriteFileAtomically(file, picture);
  PrintResult("wrote " + file);
  return 0;
}

}  // namespace muster
