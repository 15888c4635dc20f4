// What the files of a run directory say of its run: how it is, how far it came, what it measured.
// Every command that looks at a run asks here. Reads files only: nothing is locked, written or
// asked of a process of the run. What checkpoints it has: common/checkpoint/list_checkpoints.h.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace muster {

// What evaluations of one set gave. Values have losses, but no accuracies.
struct SetScores {
  std::optional<double> loss, accuracy, best_accuracy;
};

// What a run has measured; empty where it does not say so.
struct RunNumbers {
  std::optional<double> elapsed_s, train_loss, images_per_second;
  SetScores validation, test;
};

// A line of metrics.jsonl: an interval, or an evaluation.
struct MetricsRow : RunNumbers {
  int64_t step = 0;
  std::optional<double> epoch, train_accuracy, learning_rate;

  bool is_evaluation() const { return validation.loss || test.loss; }
};

enum class RunState {
  kNotBegun,     // it failed before its first step, or is yet to begin
  kRunning,      // its server is there
  kCompleted,    // also when stopped early
  kFailed,       // it says so itself
  kInterrupted,  // by a signal
  kKilled,       // no last word, and its server is gone
};
const char* StateName(RunState state);
// A run whose server, if it had one, ended without a last word.
inline bool IsGone(RunState state) {
  return state == RunState::kKilled || state == RunState::kNotBegun;
}

// The last line of metrics.jsonl, of a run that has ended.
struct RunEnd {
  RunState state = RunState::kCompleted;
  std::optional<int64_t> best_step;
  std::vector<std::string> weights;  // the names of the files of weights that were written
};

struct RunRecord {
  std::string dir;   // as it was given
  std::string name;  // the directory's, below where was looked
  RunState state = RunState::kNotBegun;
  std::string began;  // local time, "2026-01-31 12:00"; "" if not known
  std::optional<int64_t> steps, total_steps, workers;
  RunNumbers latest;             // the latest value of each number
  std::vector<MetricsRow> rows;  // in the order of steps; a step that was repeated counts once
  std::optional<RunEnd> end;     // nothing if metrics.jsonl has no last line
  std::string weights_hash;
  int64_t server_restarts = 0;
  int64_t unreadable_lines = 0;  // of metrics.jsonl, but for a last one that is being written

  // The validation set chooses the best weights of a run that has one, else the test set does.
  bool validates() const { return latest.validation.loss.has_value(); }
  const SetScores& choosing(const RunNumbers& of) const {
    return validates() ? of.validation : of.test;
  }
  // On the test set. A run with a validation set tests only its end, so until it is completed this
  // is on the set that chooses.
  std::optional<double> accuracy() const {
    const bool tested = latest.test.accuracy && (!validates() || state == RunState::kCompleted);
    return tested ? latest.test.accuracy : latest.validation.accuracy;
  }
  // The evaluation with the best accuracy or, of values, the lowest loss; null if there is none.
  const MetricsRow* best() const;
};

// The files of weights that a run leaves.
inline constexpr const char* kModelFiles[] = {"model.safetensors", "best.safetensors",
                                              "model-raw.safetensors", "model-ema.safetensors"};

// True where a run's files lie.
bool IsRunDir(const std::string& dir);

// Throws Error: kUsage where `dir` is no run directory, or its files cannot be read; kData where
// metrics.jsonl is no plain file.
RunRecord ReadRun(const std::string& dir);
// The same, but nothing where `dir` is no run directory.
std::optional<RunRecord> ReadRunIfThere(const std::string& dir);

// Every run in `dir` and, to a few levels, below it, the oldest first. A run that cannot be read is
// left out, and `troubles` says why. Throws Error(kUsage) where there is no such directory.
std::vector<RunRecord> FindRuns(const std::string& dir, std::vector<std::string>& troubles);

// status.json, which the run's server replaces while it lives (proto/PROTOCOL.md, "The status
// file"). Nothing where there is none. Throws Error(kFailure) where it cannot be understood.
std::optional<nlohmann::json> ReadStatus(const std::string& run_dir);

// The end that the status tells of, if it is the last one of its server.
std::optional<RunState> EndIn(const nlohmann::json& status);

// Whether the server that wrote it still is: on its own host its process is looked for, from
// another one a status that is older than some seconds says no.
bool ServerIsAlive(const nlohmann::json& status);

// Seconds since it was written; below 0 where another host's clock is ahead.
double StatusAge(const nlohmann::json& status);

// Fields of an object that somebody else may have written: nothing, or "", where there is none of
// this name, or one of another type.
std::optional<double> NumberIn(const nlohmann::json& object, const char* key);
std::optional<int64_t> WholeNumberIn(const nlohmann::json& object, const char* key);
std::string TextIn(const nlohmann::json& object, const char* key);

}  // namespace muster
