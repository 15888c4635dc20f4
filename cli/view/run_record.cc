#include "cli/view/run_record.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common/base/error.h"
#include "common/base/file.h"
#include "common/base/json.h"
#include "common/base/process.h"
#include "common/base/text.h"

namespace muster {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr int kLevels = 3;  // runs/SERIES/seed-1
// The status is written each second, or twice as often; a busy disk and another host's clock take
// their part.
constexpr double kStaleSeconds = 30;

std::optional<int64_t> Whole(const Json& line, const char* key) {
  const std::optional<double> number = NumberIn(line, key);
  return number ? WholeNumberOf(*number) : std::nullopt;
}

// "2026-01-31T12:00:05.123Z" less what had elapsed by then, in local time.
std::string Began(const std::string& utc, double elapsed_s) {
  std::tm time{};
  if (std::sscanf(utc.c_str(), "%4d-%2d-%2dT%2d:%2d:%2d", &time.tm_year, &time.tm_mon,
                  &time.tm_mday, &time.tm_hour, &time.tm_min, &time.tm_sec) != 6) {
    return "";
  }
  // Times that no run has been at are not worked out.
  constexpr double kMostSeconds = 1e10;
  if (time.tm_year < 1900 || time.tm_year > 9999 || !(std::abs(elapsed_s) < kMostSeconds))
    return "";
  time.tm_year -= 1900;
  time.tm_mon -= 1;
  const std::time_t began = ::timegm(&time) - static_cast<std::time_t>(elapsed_s);
  std::tm local{};
  if (::localtime_r(&began, &local) == nullptr) return "";
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M", &local);
  return text.data();
}

MetricsRow RowOf(const Json& line) {
  return {.step = NumberIn(line, "step").value_or(0),
          .epoch = NumberIn(line, "epoch").value_or(0),
          .elapsed_s = NumberIn(line, "elapsed_s").value_or(0),
          .train_loss = NumberIn(line, "train_loss"),
          .train_accuracy = NumberIn(line, "train_accuracy"),
          .learning_rate = NumberIn(line, "learning_rate"),
          .images_per_second = NumberIn(line, "images_per_second"),
          .validation_loss = NumberIn(line, "validation_loss"),
          .validation_accuracy = NumberIn(line, "validation_accuracy"),
          .test_loss = NumberIn(line, "test_loss"),
          .test_accuracy = NumberIn(line, "test_accuracy")};
}

// What is the same in every line: the latest one counts.
void TakeLatest(const Json& line, RunRecord& run) {
  const auto take = [&]<typename T>(std::optional<T>& to, std::optional<T> value) {
    if (value) to = value;
  };
  take(run.steps, Whole(line, "step"));
  take(run.total_steps, Whole(line, "total_steps"));
  take(run.elapsed_s, NumberIn(line, "elapsed_s"));
  take(run.train_loss, NumberIn(line, "train_loss"));
  take(run.images_per_second, NumberIn(line, "images_per_second"));
  take(run.validation_loss, NumberIn(line, "validation_loss"));
  take(run.validation_accuracy, NumberIn(line, "validation_accuracy"));
  take(run.best_validation_accuracy, NumberIn(line, "best_validation_accuracy"));
  take(run.test_loss, NumberIn(line, "test_loss"));
  take(run.test_accuracy, NumberIn(line, "test_accuracy"));
  take(run.best_test_accuracy, NumberIn(line, "best_test_accuracy"));
  const auto ranks = line.find("ranks");
  if (ranks != line.end() && ranks->is_array()) run.workers = static_cast<int64_t>(ranks->size());
}

RunState EndOf(const std::string& reason) {
  if (reason == "completed") return RunState::kCompleted;
  return reason == "interrupted" ? RunState::kInterrupted : RunState::kFailed;
}

// A run that went on from an earlier step writes the steps from there once more.
void AddRow(const MetricsRow& row, std::vector<MetricsRow>& rows) {
  if (!rows.empty() && rows.back().step > row.step) {
    while (!rows.empty() && rows.back().step >= row.step) rows.pop_back();
  }
  rows.push_back(row);
}

void AddLine(const Json& line, RunRecord& run) {
  if (line.contains("event")) {  // of a moment, not of a step
    if (TextIn(line, "event") == "server_restarted") ++run.server_restarts;
    return;
  }
  if (run.began.empty()) {
    run.began = Began(TextIn(line, "time"), NumberIn(line, "elapsed_s").value_or(0));
  }
  TakeLatest(line, run);
  if (const auto final = line.find("final"); final != line.end() && *final == true) {
    run.state = EndOf(TextIn(line, "reason"));
    run.weights_hash = Printable(TextIn(line, "weights_hash"));
    return;
  }
  run.state = RunState::kKilled;  // unless a last line follows
  AddRow(RowOf(line), run.rows);
  if (run.validates() && !run.rows.back().test_loss) {
    // Only the end of such a run is tested, and this one has gone on since.
    run.test_loss.reset();
    run.test_accuracy.reset();
  }
  const auto take_best = [](std::optional<double>& best, const std::optional<double>& accuracy) {
    if (accuracy) best = std::max(best.value_or(*accuracy), *accuracy);
  };
  take_best(run.best_validation_accuracy, run.rows.back().validation_accuracy);
  if (!run.validates()) take_best(run.best_test_accuracy, run.rows.back().test_accuracy);
}

void ReadMetrics(const std::string& path, RunRecord& run) {
  std::ifstream file = ReadPlainFile(path);
  if (!file) {
    throw Error(ExitCode::kUsage, "{}: cannot be read: {}", path, std::strerror(errno));
  }
  for (std::string text; std::getline(file, text);) {
    const bool whole = !file.eof();  // its newline is there
    const Json line = ParseJson(text);
    if (line.is_object()) {
      AddLine(line, run);
    } else if (whole) {
      ++run.unreadable_lines;
    }
  }
}

// What the status knows and the metrics do not: that it runs, and the length of a run under way.
void TakeStatus(const Json& status, RunRecord& run) {
  // 0: the workers have not joined yet, and the server does not know.
  if (const auto total = Whole(status, "total_steps"); !run.total_steps && total.value_or(0) > 0) {
    run.total_steps = total;
  }
  if (!run.workers && status.contains("ranks") && status["ranks"].is_array()) {
    run.workers = static_cast<int64_t>(status["ranks"].size());
  }
  const bool ended = run.state != RunState::kKilled && run.state != RunState::kNotBegun;
  const auto step = Whole(status, "step");
  const bool alive = ServerIsAlive(status);
  // Killed before its first line of metrics.
  if (!alive && run.state == RunState::kNotBegun && step.value_or(0) > 0) {
    run.state = RunState::kKilled;
    run.steps = step;
  }
  if (ended || !alive) return;
  run.state = RunState::kRunning;
  if (step && *step >= run.steps.value_or(0)) {
    run.steps = step;
    run.elapsed_s = NumberIn(status, "elapsed_s");
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

std::optional<double> NumberIn(const Json& line, const char* key) {
  const auto found = line.find(key);
  if (found == line.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

std::string TextIn(const Json& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_string() ? found->get<std::string>() : "";
}

const char* StateName(RunState state) {
  static constexpr std::array kNames = {"not begun", "running",     "completed",
                                        "failed",    "interrupted", "killed"};
  return kNames[static_cast<size_t>(state)];
}

bool IsRunDir(const std::string& dir) {
  std::error_code ignored;
  const auto has = [&](const char* name) {
    return fs::is_regular_file(fs::path(dir) / name, ignored);
  };
  return has("metrics.jsonl") || (has("config.txtpb") && has("server.log"));
}

RunRecord ReadRun(const std::string& dir) {
  if (!IsRunDir(dir)) {
    throw Error(ExitCode::kUsage,
                "{}: expected a run directory, which has config.txtpb and metrics.jsonl; "
                "`muster runs` lists those below runs/",
                dir);
  }
  RunRecord run{.dir = dir, .name = fs::path(dir).lexically_normal().filename()};
  if (run.name.empty()) run.name = fs::path(dir).lexically_normal().parent_path().filename();
  std::error_code ignored;
  if (fs::exists(fs::path(dir) / "metrics.jsonl", ignored))
    ReadMetrics(dir + "/metrics.jsonl", run);
  try {
    if (const auto status = ReadStatus(dir)) TakeStatus(*status, run);
  } catch (const Error&) {
    // Somebody else's file of that name: the metrics say enough.
  }
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
  std::ranges::sort(runs, {}, [](const RunRecord& run) { return std::pair(run.began, run.name); });
  return runs;
}

std::optional<Json> ReadStatus(const std::string& run_dir) {
  const std::string path = run_dir + "/status.json";
  std::ifstream file = ReadPlainFile(path);
  if (!file) return std::nullopt;
  std::stringstream text;
  text << file.rdbuf();
  Json status = ParseJson(text.str());
  if (!status.is_object() || !status.contains("server") || !status["server"].is_object()) {
    throw Error(ExitCode::kFailure, "{}: expected the status of a Muster run, which is not there",
                path);
  }
  return status;
}

bool ServerIsAlive(const Json& status) {
  const Json& server = status["server"];
  const ProcessIdentity writer{
      .host = TextIn(server, "host"),
      .pid = Whole(server, "pid").value_or(0),
      .started = static_cast<uint64_t>(Whole(server, "started").value_or(0))};
  if (writer.host == HostName()) return IsAlive(writer);
  return StatusAge(status) < kStaleSeconds;
}

double StatusAge(const Json& status) {
  const double now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  return now - NumberIn(status, "unix_time").value_or(0);
}

}  // namespace muster
