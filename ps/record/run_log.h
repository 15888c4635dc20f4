// The record of a run: run.events (common/events/event_log.h), and metrics.jsonl, whose lines are
// made from the same events. A resumed run continues both where its checkpoint ends.
//
// Owner: the recorder. The loop thread calls the constructor and Begin; then only the recorder's
// writer thread uses it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "proto/checkpoint.pb.h"
#include "proto/events.pb.h"
#include "ps/record/growing_file.h"

namespace muster {

class RunLog {
 public:
  // `dir` may be empty: no files. `resumed`: the checkpoint of a resumed run, or null. Creates the
  // files of a new run, and those that a resumed run lacks. A run.events that does not continue the
  // checkpoint is put aside as run.events.damaged. Throws Error(kFailure).
  RunLog(const std::string& dir, const checkpoint::State* resumed, GrowingFile::Warn warn);

  // The run begins at W(step), or resumes there: intervals, evaluations and summaries after the
  // checkpoint are undone, and metrics.jsonl is cut. If it was changed, it is written again from
  // run.events, and what was there goes to metrics-cut.jsonl. If there was no usable run.events, it
  // begins with the lines of metrics.jsonl. Visits all earlier events that still count. Throws
  // Error(kFailure).
  void Begin(int64_t step, const std::function<void(const events::Event&)>& visit);

  void Append(const events::Event& event);
  // Writes what is pending.
  void Flush();
  // Retries what could not be written, at most every few seconds.
  void TryAgain();
  // Disables retries from now on.
  void EndRetries();

  // The state that a checkpoint at this moment saves.
  struct Kept {
    checkpoint::GrownFile metrics, events;
  };
  Kept Keep() const { return {metrics_.Keep(), events_.Keep()}; }
  // Why not all is on disk, or "".
  std::string trouble() const;
  // The descriptor of run.events, for fsync; -1 without a file.
  int fd() const { return events_.fd(); }

 private:
  // The lines of metrics.jsonl that stay in a run without a usable run.events.
  struct OldLines {
    std::string there, pending;
  };
  // The records of run.events so far.
  struct Records {
    std::string there = {}, pending = {};
    int64_t position = 0;  // behind those that the checkpoint counts
  };
  Records RecordsSoFar() const;
  static Records RecordsOf(const OldLines& lines);
  OldLines SplitMetrics(const std::string& text, int64_t step) const;
  void PutAside(std::string_view lines) const;

  const std::optional<Kept> resumed_;
  const GrowingFile::Warn warn_;
  const bool continues_;          // run.events has what the checkpoint counts
  GrowingFile metrics_, events_;  // only a run without lines begins run.events anew
};

}  // namespace muster
