// A file of TensorBoard's events (event_records.h).
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/background_thread.h"
#include "proto/tensorboard.pb.h"

namespace muster {

// Seconds, as a wall_time is given.
double UnixTime();

// Events are put together, framed and written by a thread of the caller's, in order, and can be
// read as soon as that is done. What a full or slow disk does not take waits in memory until it
// does: scalars all of them, as the lines of metrics.jsonl do, pictures and histograms a few
// megabytes. What is more is lost. TakeTrouble says so.
class EventFile {
 public:
  // A new file events.out.tfevents.… in `dir`, which begins with the format's version. What earlier
  // files there say of more than `steps_done` steps no longer counts: a run that went on from there
  // says it again. `thread` outlives this.
  EventFile(const std::string& dir, int64_t steps_done, BackgroundThread& thread);
  ~EventFile();
  EventFile(const EventFile&) = delete;

  // `event` gets its time here, if it has none.
  void Write(tensorboard::Event event);
  // In one job.
  void WriteAll(std::vector<tensorboard::Event> events);

  // Until what was written so far is on the disk, or cannot be. Any thread may wait.
  void AwaitWritten(std::chrono::seconds at_most);

  // What a person should know, each once.
  std::optional<std::string> TakeTrouble();

  // Nothing more will be written. What the file lacks of all that was, and why; "" if it has all.
  std::string Missing(std::chrono::seconds at_most);
  const std::string& path() const;

 private:
  // Events, and from which steps to which.
  struct Events {
    int64_t count = 0, first = 0, last = 0;
    void Add(int64_t step);
    void Add(const Events& others);
    std::string Text() const;  // "3 of its events, of steps 10 to 30"
  };
  void Refuse(int64_t step);

  struct Shared;  // with the thread
  BackgroundThread& thread_;
  std::shared_ptr<Shared> shared_;
  Events refused_;  // large ones, since the disk was too slow
};

}  // namespace muster
