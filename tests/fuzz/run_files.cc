// metrics.jsonl and the status in run.events with any contents, as read by `muster runs`, `plot`,
// `top` and a resumed server. Rows are in the order of steps, output is safe for terminals, charts
// have finite numbers, and the metrics before a checkpoint remain unchanged.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/view/plot_command.h"
#include "cli/view/run_reader.h"
#include "cli/view/runs_command.h"
#include "cli/view/top_view.h"
#include "common/base/records.h"
#include "common/events/event_log.h"
#include "ps/record/kept_lines.h"
#include "ps/record/metrics_file.h"
#include "ps/record/restart_record.h"
#include "tests/fuzz/fuzz.h"

namespace muster::fuzz {
namespace fuzz_run_files {

void CheckLines(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) {
    for (const char c : line) {
      const auto code = static_cast<unsigned char>(c);
      Require(code >= 0x20 && code != 0x7f, "a line with a control character");
    }
  }
}

void CheckPicture(const RunRecord& run) {
  for (const PlotAxis axis : {PlotAxis::kStep, PlotAxis::kEpoch, PlotAxis::kTime}) {
    const std::string text = DrawRuns({run}, axis);
    for (const char* none : {"nan", "\"inf", "-inf", ",inf", " inf"}) {
      Require(text.find(none) == std::string::npos, "a coordinate is not a number");
    }
  }
}

void CheckRecord(const Folder& folder, size_t lines) {
  OrError(folder.path(), [&] {
    const RunRecord run = ReadRun(folder.path());
    for (size_t i = 1; i < run.rows.size(); ++i) {
      Require(run.rows[i - 1].step <= run.rows[i].step, "rows are not in the order of steps");
    }
    const auto unreadable = static_cast<size_t>(run.unreadable_lines);
    Require(run.rows.size() + unreadable <= lines, "more rows than lines");
    for (const int width : {20, 79, 1000}) CheckLines(RunsTable({run}, width));
    Require(nlohmann::json::accept(RunsJson({run})), "no JSON");
    CheckPicture(run);
  });
}

void CheckTop(const Folder& folder) {
  OrError(folder.path(), [&] {
    const auto status = ReadStatus(folder.path());
    if (!status) return;
    const TopRun run{.name = "run", .state = RunState::kRunning, .age_s = StatusAge(*status)};
    for (const TopScreen& screen : {TopScreen{}, TopScreen{20, 6}, TopScreen{300, 100}}) {
      CheckLines(TopLines(*status, run, screen));
    }
  });
}

std::string Slurp(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// Cuts the file as a resumed server does: where the checkpoint says, if it knows the file,
// otherwise at the end of a line. Everything before remains.
void CheckCut(const Folder& folder, const std::string& text, const checkpoint::GrownFile& kept) {
  const std::string path = folder.Write("metrics.jsonl", text);
  OrError(path, [&] {
    const DueLines due{.step = 3, .logs = {1, 2, 3}, .evaluations = {2}};
    MetricsFile file(path, &kept, [](const std::string&) {});
    Require(file.Cut(due).restarts.size() <= text.size() + kept.unwritten().size(),
            "more restarts than lines");
    file.Append("");
    const std::string left = Slurp(path);
    Require(left.size() <= 2 * text.size() + kept.unwritten().size() + 1, "metrics.jsonl grew");
    if (kept.has_xxh3() && static_cast<size_t>(kept.bytes()) <= text.size()) {
      const std::string before = text.substr(0, static_cast<size_t>(kept.bytes()));
      Require(left.starts_with(before + kept.unwritten()), "a line was changed");
    } else {
      const size_t bytes = KeptLinesOf(text, due).bytes;
      Require(bytes == 0 || text[bytes - 1] == '\n', "the file was cut within a line");
      Require(left.starts_with(text.substr(0, bytes)), "a line was changed");
    }
    Require(static_cast<size_t>(file.Keep().bytes()) == left.size(),
            "the recorded length is wrong");
  });
  std::filesystem::remove(std::filesystem::path(path).replace_filename("metrics-cut.jsonl"));
}

}  // namespace fuzz_run_files
}  // namespace muster::fuzz

FUZZ_TARGET(run_files) {
  using namespace muster::fuzz;
  using namespace muster::fuzz::fuzz_run_files;
  SilenceLogs();
  static const Folder folder;
  Input input(data, size);
  muster::checkpoint::GrownFile kept;
  const auto number = input.Number<int64_t>();
  kept.set_bytes(number & std::numeric_limits<int64_t>::max());  // checkpoints have no others
  kept.set_unwritten(input.Text());
  folder.Write(muster::kEventLog, muster::FrameRecord(input.Text()));
  const std::string metrics = input.Rest();
  folder.Write("metrics.jsonl", metrics);
  if (number >= 0)
    kept.set_xxh3(muster::HashOf(metrics.substr(0, static_cast<size_t>(kept.bytes()))));
  CheckRecord(folder, 1 + static_cast<size_t>(std::ranges::count(metrics, '\n')));
  CheckTop(folder);
  CheckCut(folder, metrics, kept);
  return 0;
}
