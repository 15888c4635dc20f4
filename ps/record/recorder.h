// What the server says of a run. An event is recorded once, and goes where its kind belongs: to the
// launcher (proto/events.proto), metrics.jsonl, TensorBoard's files and the log.
//
// Used in the loop's thread, which alone writes to the launcher's pipe. A thread of its own writes
// the lines of metrics.jsonl, TensorBoard's records, status.json and other small files, in the
// order in which they were recorded: the loop, and with it every sign of life, waits for none of
// them. Whatever a disk does not take is kept, and tried again (common/base/retry.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <future>
#include <map>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/base/background_thread.h"
#include "common/base/retry.h"
#include "common/graph/graph.h"
#include "proto/checkpoint.pb.h"
#include "proto/config.pb.h"
#include "proto/events.pb.h"
#include "ps/record/event_pipe.h"
#include "ps/record/event_texts.h"
#include "ps/record/metrics_file.h"
#include "ps/record/restart_record.h"
#include "ps/record/status_file.h"
#include "ps/tensorboard/board.h"

namespace muster {

class Recorder {
 public:
  // Without config.run.dir no file is written. `event_fd` may be -1: no events; it becomes
  // non-blocking. `resumed`: from the checkpoint of a run that is resumed, or null. `losses`:
  // servers of this run that were lost before this one, of which metrics.jsonl does not tell yet.
  // `config` and `graph` outlive this. Throws Error(kFailure) if metrics.jsonl cannot be created,
  // or opened.
  Recorder(const config::Config& config, const Graph& graph, int event_fd,
           const checkpoint::Metrics* resumed = nullptr, std::vector<LostServer> losses = {});
  Recorder(const Recorder&) = delete;

  // `images`: for TensorBoard, of an evaluation. A summary is given to Finish instead.
  void Record(const events::Event& event, const std::vector<SampleImage>& images = {});
  void Warn(const std::string& message) { Record(WarningEvent(message)); }
  // A warning from any thread, which is recorded with the next event.
  void Notice(const std::string& message);

  // The run begins, or is resumed, at W(step). Lines of metrics.jsonl have waited for this: a run
  // that never begins leaves none. `due`: of a resumed run, what its files must have
  // (MetricsFile::Cut). Throws Error(kFailure).
  void Begin(int64_t step, const std::optional<DueLines>& due = std::nullopt);

  // The part of metrics.jsonl that belongs to this moment. It is known once everything that was
  // recorded until now is on the disk, or was refused by it.
  std::shared_future<checkpoint::Metrics> KeepMetrics();
  // For fsync; -1 without a file.
  int metrics_fd() const { return metrics_.fd(); }

  // Replaces status.json; learning rate and what was measured are filled in. One that comes while
  // another one waits for the disk is left out.
  bool wants_status() const { return status_file_.wanted(); }
  void Status(RunStatus status);
  // A small file in the run directory, which is there whole or not at all.
  void WriteFile(const std::string& name, std::string text);
  Board& board() { return board_; }

  // The last word on the run, and the last status. Returns the summary with what is known here:
  // changes of the members, restarts, and what could not be written to the disk. Waits until all is
  // written, a minute at most.
  events::Summary Finish(events::Summary summary, RunStatus status);

 private:
  // What is not on the disk: `trouble` may come later, `lost` is gone for good.
  struct Missing {
    std::string trouble, lost;
  };
  void Append(const nlohmann::ordered_json& line);
  void WriteLines();
  void Count(const events::Event& event);
  std::vector<std::string> TakeNotices();
  Missing AwaitAll(int64_t step);
  // These run in the thread.
  void TryAgain();
  void EndRetries();  // the run is over: the summary says what is missing
  void WriteFiles();
  Missing WriteAll();

  const std::string dir_;
  EventPipe pipe_;
  std::vector<LostServer> losses_;
  bool begun_ = false;
  std::string lines_;          // that wait for the begin
  events::Summary so_far_;     // what the summary will say of changes and restarts
  events::Measured measured_;  // of the last interval
  double learning_rate_ = 0;

  std::mutex mutex_;
  std::vector<std::string> notices_;  // under the mutex
  std::atomic<bool> status_waits_{false};

  // Used by the thread, once the run has begun.
  MetricsFile metrics_;
  StatusFile status_file_;
  std::map<std::string, std::string> files_;  // that are not written yet
  Retry files_retry_;

  // Used by the loop; the thread writes what it submits. The thread is last: joined first.
  Board board_;
  BackgroundThread thread_;
};

}  // namespace muster
