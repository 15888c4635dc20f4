#include "cli/view/run_reader.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "cli/process/log_tail.h"
#include "cli/text/units.h"
#include "common/base/error.h"
#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/process.h"
#include "common/base/text.h"
#include "common/events/event_log.h"
#include "common/events/metrics_line.h"
#include "common/plan/metrics.h"

namespace muster {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr int kLevels = 3;  // runs/SERIES/seed-1
// The status is written at least every second. Allow for a slow disk and another host's clock.
constexpr double kStaleSeconds = 30;

// Fields of an untrusted object: nothing, or "", if the field is missing or has another type.
std::optional<double> NumberIn(const Json& object, const std::string& key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

std::optional<int64_t> WholeNumberIn(const Json& object, const char* key) {
  const auto number = NumberIn(object, key);
  return number ? WholeNumberOf(*number) : std::nullopt;
}

std::string TextIn(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

// "2026-01-31 12:00", or "" if the time has no such text.
std::string LocalMinute(std::time_t time) {
  std::tm local{};
  if (::localtime_r(&time, &local) == nullptr) return "";
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M", &local);
  return text.data();
}

// Takes when a run began: the UTC time, such as "2026-01-31T12:00:05.123Z", less `elapsed_s`.
void TakeBegin(const std::string& utc, double elapsed_s, RunRecord& run) {
  constexpr double kMostSeconds = 1e10;
  std::tm time{};
  if (::strptime(utc.c_str(), "%Y-%m-%dT%H:%M:%S", &time) == nullptr) return;
  if (!(std::abs(elapsed_s) < kMostSeconds)) return;
  run.began = LocalMinute(::timegm(&time) - static_cast<std::time_t>(elapsed_s));
  double fraction = 0;  // of a second
  (void)std::sscanf(utc.c_str(), "%*[^.]%lf", &fraction);
  run.order = static_cast<double>(::timegm(&time)) + fraction - elapsed_s;
}

// Updates `numbers` with the values that the line has.
void TakeNumbers(const Json& line, RunNumbers& numbers) {
  const auto take = [&](const char* key, std::optional<double>& to) {
    if (const auto number = NumberIn(line, key)) to = number;
  };
  // Null stands for a loss that is not finite.
  const auto take_loss = [&](const char* key, std::optional<double>& to) {
    const auto found = line.find(key);
    if (found != line.end() && found->is_null()) to = NAN;
    take(key, to);
  };
  take("elapsed_s", numbers.elapsed_s);
  take("train_loss", numbers.train_loss);
  take("images_per_second", numbers.images_per_second);
  take_loss("validation_loss", numbers.validation.loss);
  take("validation_accuracy", numbers.validation.accuracy);
  take("best_validation_accuracy", numbers.validation.best_accuracy);
  take_loss("test_loss", numbers.test.loss);
  take("test_accuracy", numbers.test.accuracy);
  take("best_test_accuracy", numbers.test.best_accuracy);
}

// The scalars of a program that trains its own model, or a network's metrics.
std::map<std::string, double> ScalarsIn(const Json& line, const std::string& set) {
  std::map<std::string, double> scalars;
  for (const Metric& metric : kMetrics) {
    if (const auto value = NumberIn(line, set + metric.Key())) scalars[metric.Key()] = *value;
  }
  const auto found = line.find(set + "scalars");
  if (found == line.end() || !found->is_object()) return scalars;
  for (const auto& [name, value] : found->items()) {
    if (value.is_number()) scalars[Printable(name)] = value.get<double>();
  }
  return scalars;
}

MetricsRow RowOf(const Json& line) {
  MetricsRow row;
  TakeNumbers(line, row);
  row.step = WholeNumberIn(line, "step").value_or(0);
  row.epoch = NumberIn(line, "epoch");
  row.train_accuracy = NumberIn(line, "train_accuracy");
  row.learning_rate = NumberIn(line, "learning_rate");
  row.scalars = ScalarsIn(line, "");
  row.test.scalars = ScalarsIn(line, "test_");
  row.validation.scalars = ScalarsIn(line, "validation_");
  return row;
}

std::optional<int64_t> SizeOfArrayIn(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_array()) return std::nullopt;
  return static_cast<int64_t>(found->size());
}

std::optional<RunState> EndOfName(const std::string& name) {
  for (const RunState end : {RunState::kCompleted, RunState::kFailed, RunState::kInterrupted}) {
    if (name == StateName(end)) return end;
  }
  return std::nullopt;
}

RunEnd EndOf(const Json& line) {
  RunEnd end{.state = EndOfName(TextIn(line, "reason")).value_or(RunState::kFailed),
             .step = WholeNumberIn(line, "step"),
             .best_step = WholeNumberIn(line, "best_step")};
  for (const Json& model : line.value("models", Json::array())) {
    if (const std::string file = TextIn(model, "file"); !file.empty()) {
      end.weights.push_back(fs::path(file).filename());
    }
  }
  return end;
}

// A run that was resumed from an earlier step writes the steps after it again.
void AddRow(const MetricsRow& row, std::vector<MetricsRow>& rows) {
  if (!rows.empty() && rows.back().step > row.step) {
    while (!rows.empty() && rows.back().step >= row.step) rows.pop_back();
  }
  rows.push_back(row);
}

void AddLine(const Json& line, RunRecord& run) {
  if (line.contains("event")) {
    if (TextIn(line, "event") == "server_restarted") ++run.server_restarts;
    return;
  }
  if (run.began.empty()) {
    TakeBegin(TextIn(line, "time"), NumberIn(line, "elapsed_s").value_or(0), run);
  }
  TakeNumbers(line, run.latest);
  if (const auto step = WholeNumberIn(line, "step")) run.steps = step;
  if (const auto total = WholeNumberIn(line, "total_steps")) run.total_steps = total;
  if (const auto ranks = SizeOfArrayIn(line, "ranks")) run.workers = ranks;
  run.end.reset();
  if (const auto final = line.find("final"); final != line.end() && *final == true) {
    run.end = EndOf(line);
    run.weights_hash = Printable(TextIn(line, "weights_hash"));
    return;
  }
  const MetricsRow row = RowOf(line);
  AddRow(row, run.rows);
  // A run with a validation set is tested only at its end, and this one has continued since.
  if (run.validates() && !row.test.loss) run.latest.test = {};
  SetScores& latest = run.validates() ? run.latest.validation : run.latest.test;
  const SetScores& scores = run.choosing(row);
  if (scores.accuracy && scores.finite()) {
    latest.best_accuracy =
        std::max(latest.best_accuracy.value_or(*scores.accuracy), *scores.accuracy);
  }
}

// Reads the lines up to the end of the text or file.
void ReadLines(std::istream& lines, RunRecord& run) {
  for (std::string text; std::getline(lines, text);) {
    const bool whole = !lines.eof();  // the line ends in a newline
    const Json line = ParseJson(text);
    if (line.is_object()) {
      AddLine(line, run);
    } else if (whole) {
      ++run.unreadable_lines;
    }
  }
}

// metrics.jsonl has the lines of runs of earlier versions, and of those that could not use their
// run.events. Those of others are in run.events, where nobody changes them.
void ReadMetrics(const std::string& dir, RunRecord& run) {
  std::ifstream log = ReadPlainFile(dir + "/" + kEventLog);
  const auto add = [&](const events::Event& event, int64_t) {
    std::istringstream lines(MetricsText(event));
    ReadLines(lines, run);
  };
  if (log && ForEachStanding(log, kFirstRecord, add)) return;
  const std::string path = dir + "/metrics.jsonl";
  std::ifstream file = ReadPlainFile(path);
  if (!file && errno != ENOENT) {
    throw Error(ExitCode::kUsage, "{}: cannot be read: {}", path, std::strerror(errno));
  }
  ReadLines(file, run);
}

// The status is newer than the metrics: a resumed run keeps
// its old final line until its workers have joined, and a full disk may hold the final status but
// not the final line.
RunState StateOf(const RunRecord& run, const std::optional<events::Status>& status) {
  const auto end = status ? EndIn(*status) : std::nullopt;
  if (status && !end && ServerIsAlive(*status)) return RunState::kRunning;
  const bool begun = !run.rows.empty() || run.end || (status && status->progress().at().step() > 0);
  if (!begun) return RunState::kNotBegun;
  // A server that resumes a run removes the final line. If that line still reports completion but
  // the status reports another end, the status comes from an attempt that was refused.
  if (run.end && run.end->state == RunState::kCompleted) return RunState::kCompleted;
  if (end) return *end;
  return run.end ? run.end->state : RunState::kKilled;
}

// Whether the server of a run that has no recorded end could not record it. An empty log could not
// be written either.
bool DiskWasFull(const std::string& dir) {
  const std::vector<std::string> log = LastLines(dir + "/server.log", 100);
  if (log.empty()) return !DiskTrouble(dir).empty();
  for (auto line = log.rbegin(); line != log.rend(); ++line) {
    if (line->find(std::strerror(ENOSPC)) != std::string::npos) return true;
    if (line->ends_with("written again")) return false;
  }
  return false;
}

// Takes the length and progress of a running run, which the metrics lack.
void TakeStatus(const events::Status& status, RunRecord& run) {
  const events::Progress& progress = status.progress();
  // The total is 0 until the workers have joined.
  if (!run.total_steps && progress.total_steps() > 0) run.total_steps = progress.total_steps();
  if (!run.workers && status.ranks_size() > 0) run.workers = status.ranks_size();
  const int64_t step = progress.at().step();
  if (run.state != RunState::kRunning) {
    if (!run.steps && step > 0) run.steps = step;  // ended before its first line
  } else if (progress.at().has_step() && step >= run.steps.value_or(0)) {
    run.steps = step;
    run.latest.elapsed_s = progress.at().elapsed_s();
  }
}

void Find(const fs::path& dir, int levels, std::vector<std::string>& found) {
  if (IsRunDir(dir)) found.push_back(dir);
  if (levels == 0) return;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(dir, error)) {
    std::error_code ignored;
    if (!entry.is_symlink(ignored) && entry.is_directory(ignored)) {
      Find(entry.path(), levels - 1, found);
    }
  }
}

}  // namespace

std::string DiskTrouble(const std::string& run_dir) {
  constexpr uint64_t kLeast = 64 << 10;  // more than a status needs
  struct statvfs disk {};
  if (::statvfs(run_dir.c_str(), &disk) != 0) return "";
  if ((disk.f_flag & ST_RDONLY) != 0) return "its disk is read-only";
  const uint64_t free = uint64_t{disk.f_bavail} * disk.f_frsize;
  if (free >= kLeast && (disk.f_files == 0 || disk.f_favail > 0)) return "";
  return fmt::format("its disk is full ({} free)", FormatBytes(static_cast<double>(free)));
}

const char* StateName(RunState state) {
  static constexpr std::array kNames = {"not begun",   "running", "completed", "failed",
                                        "interrupted", "killed",  "disk full"};
  return kNames[static_cast<size_t>(state)];
}

const MetricsRow* RunRecord::best() const {
  // Without accuracies, the lowest loss is the best.
  const auto score = [&](const MetricsRow& row) {
    const SetScores& scores = choosing(row);
    return scores.finite() ? scores.accuracy.value_or(-scores.loss.value_or(INFINITY)) : -INFINITY;
  };
  const auto best = std::ranges::max_element(rows, {}, score);
  return best == rows.end() || std::isinf(score(*best)) ? nullptr : &*best;
}

bool IsRunDir(const std::string& dir) {
  std::error_code ignored;
  const auto has = [&](const char* name) {
    return fs::is_regular_file(fs::path(dir) / name, ignored);
  };
  return has("metrics.jsonl") || (has("config.txtpb") && has("server.log"));
}

RunRecord ReadRun(const std::string& dir) {
  if (auto run = ReadRunIfThere(dir)) return *std::move(run);
  throw Error(ExitCode::kUsage,
              "{}: expected a run directory, with config.txtpb and metrics.jsonl; `muster runs` "
              "lists those below runs/",
              dir);
}

std::optional<RunRecord> ReadRunIfThere(const std::string& dir) {
  if (!IsRunDir(dir)) return std::nullopt;
  const fs::path path = fs::absolute(dir + "/").lexically_normal();
  RunRecord run{.dir = dir, .name = path.parent_path().filename()};
  ReadMetrics(dir, run);
  struct stat config {};
  if (run.began.empty() && ::stat((dir + "/config.txtpb").c_str(), &config) == 0) {
    if (run.rows.empty()) run.began = LocalMinute(config.st_mtim.tv_sec);
    run.order = static_cast<double>(config.st_mtim.tv_sec) + 1e-9 * config.st_mtim.tv_nsec;
  }
  const std::optional<events::Status> status = ReadStatus(dir);
  run.state = StateOf(run, status);
  std::error_code ignored;
  const bool lost_weights =
      run.state == RunState::kCompleted && !fs::exists(fs::path(dir) / kModelFiles[0], ignored);
  if ((IsGone(run.state) || lost_weights) && DiskWasFull(dir)) run.state = RunState::kDiskFull;
  if (status) TakeStatus(*status, run);
  return run;
}

std::vector<RunRecord> FindRuns(const std::string& dir, std::vector<std::string>& troubles) {
  std::error_code ignored;
  if (!fs::is_directory(dir, ignored)) {
    throw Error(ExitCode::kUsage, "{}: no such directory; expected one with run directories", dir);
  }
  std::vector<std::string> found;
  Find(dir, kLevels, found);
  std::vector<RunRecord> runs;
  for (const std::string& path : found) {
    try {
      runs.push_back(ReadRun(path));
      if (path != dir) runs.back().name = fs::path(path).lexically_relative(dir).string();
    } catch (const Error& error) {
      troubles.emplace_back(error.what());
    }
  }
  std::ranges::sort(runs, {}, [](const RunRecord& run) { return std::pair(run.order, run.name); });
  return runs;
}

std::optional<events::Status> ReadStatus(const std::string& run_dir) {
  return ReadStatusPage(run_dir + "/" + kEventLog);
}

std::optional<RunState> EndIn(const events::Status& status) { return EndOfName(status.state()); }

bool ServerIsAlive(const events::Status& status) {
  const events::Status::Server& server = status.server();
  if (server.host() != HostName()) return StatusAge(status) < kStaleSeconds;
  return IsAlive({.host = server.host(), .pid = server.pid(), .started = server.started()});
}

double StatusAge(const events::Status& status) {
  const double now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  return now - status.unix_time();
}

}  // namespace muster
