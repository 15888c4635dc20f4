// A file of TensorBoard's events (event_records.h).
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "common/base/background_thread.h"
#include "proto/tensorboard.pb.h"

namespace muster {

// Seconds, as a wall_time is given.
double UnixTime();

// Events are put together, framed and written by a thread of the caller's, in order, and can be
// read as soon as that is done. What a full disk does not take waits in memory, a few megabytes of
// it, until there is room; what is more, or too much for a slow disk, is lost. TakeTrouble says so.
class EventFile {
 public:
  // A new file events.out.tfevents.… in `dir`, which begins with the format's version. What earlier
  // files there say of more than `steps_done` steps no longer counts: a run that went on from there
  // says it again. `thread` outlives this.
  EventFile(const std::string& dir, int64_t steps_done, BackgroundThread& thread);
  ~EventFile();
  EventFile(const EventFile&) = delete;

  // `event` gets its time here.
  void Write(tensorboard::Event event);

  // Until what was written so far is on the disk, or cannot be. Any thread may wait.
  void AwaitWritten(std::chrono::seconds at_most);

  // What a person should know, each once.
  std::optional<std::string> TakeTrouble();
  const std::string& path() const;

 private:
  struct Shared;  // with the thread
  BackgroundThread& thread_;
  std::shared_ptr<Shared> shared_;
  bool slow_said_ = false;
};

}  // namespace muster
