// What a run directory says of its run, whether it goes on, has ended or was killed. Reads files
// only: nothing is locked, written or asked of a process of the run.
// Its status.json is written by the run's server while that lives (proto/PROTOCOL.md, "The status
// file").
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace muster {

// A line of metrics.jsonl: an interval, or an evaluation.
struct MetricsRow {
  double step = 0, epoch = 0, elapsed_s = 0;
  std::optional<double> train_loss, train_accuracy, learning_rate, images_per_second;
  // Of an evaluation on that set.
  std::optional<double> validation_loss, validation_accuracy, test_loss, test_accuracy;
};

enum class RunState {
  kNotBegun,     // a config, and no metrics: it failed before its first step, or is yet to begin
  kRunning,      // its server is there
  kCompleted,    // also when stopped early
  kFailed,       // it says so itself
  kInterrupted,  // by a signal
  kKilled,       // no last line, and its server is gone
};
const char* StateName(RunState state);

struct RunRecord {
  std::string dir;   // as it was given
  std::string name;  // the directory's, below where was looked
  RunState state = RunState::kNotBegun;
  std::string began;  // local time, "2026-01-31 12:00"; "" if not known
  std::optional<int64_t> steps, total_steps, workers;
  std::optional<double> elapsed_s, train_loss, images_per_second;
  // Of the last evaluation of each set. Runs on values have losses, but no accuracies.
  std::optional<double> validation_loss, validation_accuracy, best_validation_accuracy;
  std::optional<double> test_loss, test_accuracy, best_test_accuracy;
  std::string weights_hash;
  int64_t server_restarts = 0;
  std::vector<MetricsRow> rows;  // in the order of steps; a step that was repeated counts once
  int64_t unreadable_lines = 0;  // of metrics.jsonl, but for a last one that is being written

  // The validation set chooses the best weights of the run, not the test set.
  bool validates() const { return validation_loss.has_value(); }
  // On the test set. A run with a validation set tests only its end, so until it is completed this
  // is on the set that chooses.
  std::optional<double> accuracy() const {
    const bool tested = test_accuracy && (!validates() || state == RunState::kCompleted);
    return tested ? test_accuracy : validation_accuracy;
  }
};

// The files of weights that a run leaves.
inline constexpr const char* kModelFiles[] = {"model.safetensors", "best.safetensors",
                                              "model-raw.safetensors", "model-ema.safetensors"};

// True where a run's files lie.
bool IsRunDir(const std::string& dir);

// Throws Error(kUsage) where `dir` is no run directory, or its files cannot be read.
RunRecord ReadRun(const std::string& dir);

// Every run in `dir` and, to a few levels, below it, the oldest first. A run that cannot be read is
// left out, and `troubles` says why. Throws Error(kUsage) where there is no such directory.
std::vector<RunRecord> FindRuns(const std::string& dir, std::vector<std::string>& troubles);

// Nothing where there is none. Throws Error(kFailure) where it cannot be understood.
std::optional<nlohmann::json> ReadStatus(const std::string& run_dir);

// Whether the server that wrote it still is: on its own host its process is looked for, from
// another one a status that is older than some seconds says no.
bool ServerIsAlive(const nlohmann::json& status);

// Seconds since it was written; below 0 where another host's clock is ahead.
double StatusAge(const nlohmann::json& status);

// Fields of an object that somebody else may have written: nothing, or "", where there is none of
// this name, or one of another type.
std::optional<double> NumberIn(const nlohmann::json& object, const char* key);
std::string TextIn(const nlohmann::json& object, const char* key);

}  // namespace muster
