// Reads the state, progress and results of a run from the files in its directory, for all commands.
// Only reads files: locks and writes nothing, and contacts no process. For a run's checkpoints see
// common/checkpoint/list_checkpoints.h.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "proto/events.pb.h"

namespace muster {

// Results of evaluations of one set. Regressions have losses, but no accuracies.
struct SetScores {
  std::optional<double> loss, accuracy, best_accuracy;  // a loss may be NaN
  std::map<std::string, double> scalars = {};           // of a program; only in rows

  bool finite() const { return !loss || std::isfinite(*loss); }
};

// Measured values of a run; empty if unknown.
struct RunNumbers {
  std::optional<double> elapsed_s, train_loss, images_per_second;
  SetScores validation, test;
};

// An interval or an evaluation.
struct MetricsRow : RunNumbers {
  int64_t step = 0;
  std::optional<double> epoch, train_accuracy, learning_rate;
  std::map<std::string, double> scalars;

  bool is_evaluation() const { return validation.loss || test.loss; }
};

enum class RunState {
  kNotBegun,     // failed before its first step, or has not started yet
  kRunning,      // its server is alive
  kCompleted,    // includes early stopping
  kFailed,       // the run recorded its failure
  kInterrupted,  // by a signal
  kKilled,       // the server is gone and did not record an end
  kDiskFull,     // the same, because the disk was full
};
inline constexpr RunState kRunStates[] = {
    RunState::kNotBegun,    RunState::kRunning, RunState::kCompleted, RunState::kFailed,
    RunState::kInterrupted, RunState::kKilled,  RunState::kDiskFull};
const char* StateName(RunState state);
// Whether the run's server, if it had one, ended without recording that.
inline bool IsGone(RunState state) {
  return state == RunState::kKilled || state == RunState::kNotBegun || state == RunState::kDiskFull;
}

// The summary of a run that has ended.
struct RunEnd {
  RunState state = RunState::kCompleted;
  std::optional<int64_t> step, best_step;
  std::vector<std::string> weights;  // names of the weights files that were written
};

// A setting in which listed runs differ.
struct DifferingSetting {
  std::string path;                  // learning_rate.base
  std::string name;                  // base, if no other setting ends like this
  std::optional<std::string> value;  // of this run; empty if it is not set
};

struct RunRecord {
  std::string dir;   // as given
  std::string name;  // of the directory, relative to the searched one
  RunState state = RunState::kNotBegun;
  std::string began;  // local time, "2026-01-31 12:00"; "" if unknown
  double order = 0;   // when it began, or before its first line when its config was written
  std::optional<int64_t> steps, total_steps, workers;
  RunNumbers latest;             // the latest value of each number
  std::vector<MetricsRow> rows;  // in the order of steps; each step appears once
  std::optional<RunEnd> end;     // empty without a summary
  std::string weights_hash;
  int64_t server_restarts = 0;
  std::vector<DifferingSetting> differs;  // filled in by CompareSettings
  int64_t unreadable_lines = 0;           // in metrics.jsonl, except a partial last line

  // Whether the run evaluates a validation set, which then chooses the best weights. Otherwise the
  // test set chooses them.
  bool validates() const { return latest.validation.loss.has_value(); }
  const SetScores& choosing(const RunNumbers& of) const {
    return validates() ? of.validation : of.test;
  }
  // The accuracy on the test set. A run with a validation set is tested only at its end, so until
  // then this is the accuracy on the validation set.
  std::optional<double> accuracy() const {
    const bool tested = latest.test.accuracy && (!validates() || state == RunState::kCompleted);
    return tested ? latest.test.accuracy : latest.validation.accuracy;
  }
  std::optional<double> loss() const {  // of the same set
    const bool tested = latest.test.loss && (!validates() || state == RunState::kCompleted);
    return tested ? latest.test.loss : latest.validation.loss;
  }
  // The evaluation with the best accuracy (regression: the lowest loss), or null.
  const MetricsRow* best() const;
};

// The weights files that a run may write.
inline constexpr const char* kModelFiles[] = {"model.safetensors", "best.safetensors",
                                              "model-raw.safetensors", "model-ema.safetensors"};

bool IsRunDir(const std::string& dir);

// Throws Error: kUsage if `dir` is not a run directory or its files cannot be read, kData if
// run.events or metrics.jsonl is not a regular file.
RunRecord ReadRun(const std::string& dir);
// Like ReadRun, but returns nothing if `dir` is not a run directory.
std::optional<RunRecord> ReadRunIfThere(const std::string& dir);

// Every run in `dir` and a few levels below it, the oldest first. Skips runs that cannot be read,
// with the reason in `troubles`. Throws Error(kUsage) if there is no such directory.
std::vector<RunRecord> FindRuns(const std::string& dir, std::vector<std::string>& troubles);

// Reads the run's status, which its server keeps replacing in run.events. Returns nothing if there
// is none that is readable. Throws Error(kData) if run.events is not a regular file.
std::optional<events::Status> ReadStatus(const std::string& run_dir);

// The end of the run, if this is the final status of its server.
std::optional<RunState> EndIn(const events::Status& status);

// Whether the server that wrote the status is alive. On the same host, looks for its process. On
// another host, the server counts as gone if the status is too old.
bool ServerIsAlive(const events::Status& status);

// Why a run's server cannot write to the directory now, or "".
std::string DiskTrouble(const std::string& run_dir);

// Seconds since the status was written; negative if another host's clock is ahead.
double StatusAge(const events::Status& status);

}  // namespace muster
