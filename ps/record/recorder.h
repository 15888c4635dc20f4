// Records the events of a run. Each event goes to the outputs of its kind: the launcher
// (proto/events.proto), run.events and metrics.jsonl, TensorBoard files and the log.
//
// Used on the loop thread, which is the only one that writes to the launcher's pipe. A writer
// thread writes events, metrics, TensorBoard records, the status and other small files, in the
// order of recording, so the loop and its heartbeats never wait for the disk. Failed writes are
// kept and retried (common/base/retry.h).
#pragma once

#include <atomic>
#include <cstdint>
#include <future>
#include <map>
#include <mutex>
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
#include "ps/record/restart_record.h"
#include "ps/record/run_log.h"
#include "ps/record/status_page.h"
#include "ps/tensorboard/board.h"

namespace muster {

class Recorder {
 public:
  // Without config.run.dir, writes no files. `event_fd` may be -1: no events; it is made
  // non-blocking. `resumed`: from the checkpoint of a resumed run, or null. `losses`: earlier
  // servers of this run that were lost and are not recorded yet. `config` and `graph` must outlive
  // this object. Throws Error(kFailure) if run.events or metrics.jsonl cannot be created or opened.
  Recorder(const config::Config& config, const Graph& graph, int event_fd,
           const checkpoint::State* resumed = nullptr, std::vector<LostServer> losses = {});
  Recorder(const Recorder&) = delete;

  // Records an event. Summaries go to Finish instead. `images`: sample images of an evaluation, for
  // TensorBoard.
  void Record(const events::Event& event, const std::vector<SampleImage>& images = {});
  void Warn(const std::string& message) { Record(WarningEvent(message)); }
  // Takes a warning from any thread. It is recorded with the next event.
  void Notice(const std::string& message);

  // Called when the run begins or resumes at W(step). Events are written to files only from then
  // on, so a run that never begins leaves none (RunLog::Begin). Throws Error(kFailure).
  void Begin(int64_t step);

  // The state of the files at this moment. The future is ready when everything recorded so far has
  // been written or has failed.
  std::shared_future<RunLog::Kept> Keep();
  // The descriptor of run.events, for fsync; -1 without a file.
  int log_fd() const { return log_.fd(); }

  // Replaces the status in run.events. Fills in learning rate and measurements. Drops the status if
  // an earlier one still waits for the disk.
  bool wants_status() const { return status_page_.wanted(); }
  void Status(events::Status status);
  // Writes a small file in the run directory atomically.
  void WriteFile(const std::string& name, std::string text);
  Board& board() { return board_; }

  // Writes the final summary and status, and waits up to a minute until everything is written. Adds
  // membership changes, restarts and write errors to the summary and returns it.
  events::Summary Finish(events::Summary summary, events::Status status);

 private:
  // What could not be written. `trouble` may still be written later; `lost` is lost for good.
  struct Missing {
    std::string trouble, lost;
  };
  void Append(const events::Event& event);
  void Count(const events::Event& event);
  std::vector<std::string> TakeNotices();
  Missing AwaitAll(int64_t step);
  // Called on the writer thread:
  void TryAgain();
  void EndRetries();  // the run is over; the summary reports what is missing
  void WriteFiles();
  Missing WriteAll();

  const std::string dir_;
  EventPipe pipe_;
  std::vector<LostServer> losses_;
  bool begun_ = false;
  std::vector<events::Event> waiting_;  // for Begin
  events::Summary so_far_;              // changes and restarts for the summary
  events::Measured measured_;           // measurements of the last interval
  double learning_rate_ = 0;

  std::mutex mutex_;
  std::vector<std::string> notices_;  // guarded by mutex_
  std::atomic<bool> status_waits_{false};

  // Used by the writer thread after Begin.
  RunLog log_;
  StatusPage status_page_;
  std::map<std::string, std::string> files_;  // pending writes
  Retry files_retry_;

  // board_ is used on the loop thread and submits work to thread_. thread_ is declared last so that
  // it joins first.
  Board board_;
  BackgroundThread thread_;
};

}  // namespace muster
