// metrics.jsonl and run.events with any contents, as read by `muster runs`, `plot`, `top` and a
// resumed server. Rows are in the order of steps, output is safe for terminals, charts have finite
// numbers, and what a checkpoint counts remains unchanged.
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
#include "common/events/metrics_line.h"
#include "ps/record/run_log.h"
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

void CheckRecord(const Folder& folder) {
  OrError(folder.path(), [&] {
    const RunRecord run = ReadRun(folder.path());
    for (size_t i = 1; i < run.rows.size(); ++i) {
      Require(run.rows[i - 1].step <= run.rows[i].step, "rows are not in the order of steps");
    }
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

std::string Logged(const std::string& path) {
  std::string text;
  std::ifstream file(path);
  (void)ForEachStanding(file, kFirstRecord,
                        [&](const events::Event& event, int64_t) { text += MetricsText(event); });
  return text;
}

// Resumes the run as a server does: from run.events, if the checkpoint knows the file, otherwise
// from the lines of metrics.jsonl. Then both files have the same lines, unless the checkpoint knows
// both, which are of different runs here.
void CheckResumed(const Folder& folder, const std::string& text, const checkpoint::State& kept) {
  const std::string path = folder.path() + "/metrics.jsonl", log = folder.path() + "/run.events";
  const bool apart = kept.events().bytes() > 0 && Continues(text, kept.metrics());
  OrError(folder.path(), [&] {
    checkpoint::State next;
    {
      RunLog files(folder.path(), &kept, [](const std::string&) {});
      files.Begin(3, [](const events::Event&) {});
      files.Flush();
      const std::string left = Slurp(path);
      if (kept.metrics().has_xxh3() && static_cast<size_t>(kept.metrics().bytes()) <= text.size()) {
        const std::string before = text.substr(0, static_cast<size_t>(kept.metrics().bytes()));
        Require(left.starts_with(before), "a line was changed");
      }
      Require(apart || Logged(log) == left, "run.events and metrics.jsonl differ");
      *next.mutable_metrics() = files.Keep().metrics;
      *next.mutable_events() = files.Keep().events;
      Require(static_cast<size_t>(next.metrics().bytes()) == left.size(), "a wrong length");
    }
    const std::string left = Slurp(path);
    RunLog again(folder.path(), &next, [](const std::string&) {});
    again.Begin(3, [](const events::Event&) {});
    again.Flush();
    Require(Slurp(path) == left && (apart || Logged(log) == left), "the next server changes lines");
  });
  for (const char* name : {"metrics-cut.jsonl", "run.events", "run.events.damaged"}) {
    std::filesystem::remove(folder.path() + "/" + name);
  }
}

}  // namespace fuzz_run_files
}  // namespace muster::fuzz

// The input: what the checkpoint counts, the status, events after their two-byte lengths, and the
// text of metrics.jsonl. If the number is negative, the checkpoint knows neither file.
FUZZ_TARGET(run_files) {
  using namespace muster::fuzz;
  using namespace muster::fuzz::fuzz_run_files;
  SilenceLogs();
  static const Folder folder;
  Input input(data, size);
  muster::checkpoint::State kept;
  const auto number = input.Number<int64_t>();
  const int64_t bytes = number & std::numeric_limits<int64_t>::max();  // checkpoints have no others
  kept.mutable_metrics()->set_bytes(bytes);
  kept.mutable_metrics()->set_unwritten(input.Text());
  const std::string status = muster::FrameRecord(input.Text());
  std::string records;
  for (int pieces = input.Byte() % 8; pieces > 0; --pieces) {
    records += muster::FrameRecord(input.Piece());
  }
  const std::string log = folder.Write(muster::kEventLog, status);
  std::filesystem::resize_file(log, muster::kFirstRecord);
  std::ofstream(log, std::ios::app) << records;
  const std::string metrics = input.Rest();
  folder.Write("metrics.jsonl", metrics);
  if (number >= 0) {
    kept.mutable_metrics()->set_xxh3(muster::HashOf(metrics.substr(0, static_cast<size_t>(bytes))));
    kept.mutable_events()->set_bytes(std::ssize(records));
    kept.mutable_events()->set_xxh3(muster::HashOf(records));
  }
  CheckRecord(folder);
  CheckTop(folder);
  CheckResumed(folder, metrics, kept);
  return 0;
}
