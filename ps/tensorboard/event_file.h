// A file of TensorBoard's events (event_records.h).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>

#include "common/base/fd.h"
#include "common/base/retry.h"
#include "proto/tensorboard.pb.h"

namespace muster {

// Seconds, as a wall_time is given.
double UnixTime();

// Used by one thread.
class EventFile {
 public:
  // Takes what a person should know, each once.
  using Warn = std::function<void(const std::string& message)>;

  // A new file events.out.tfevents.… in `dir`, which begins with the format's version. What earlier
  // files there say of more than `steps_done` steps no longer counts: a run that went on from there
  // says it again.
  EventFile(const std::string& dir, int64_t steps_done, Warn warn);
  EventFile(const EventFile&) = delete;

  // Writes an event, which can be read as soon as this is done. What a full disk does not take
  // waits in memory: small events all of them, as the lines of metrics.jsonl do, larger ones a few
  // megabytes. What is more is lost, and a warning says so.
  void Append(const tensorboard::Event& event);
  // An event of this step has been lost elsewhere.
  void Lose(int64_t step);
  // What was written so far survives a loss of power, if the disk has taken it.
  void Sync() const;
  // If something waits, and the interval of Retry has passed.
  void TryAgain();
  // What is appended from now on is not tried again.
  void EndRetries() { retry_.End(); }
  // What the file lacks of all that was appended, and why; "" if it has all. Tries again first.
  std::string Missing();
  const std::string& path() const { return path_; }

 private:
  // Events, and from which steps to which.
  struct Events {
    int64_t count = 0, first = 0, last = 0;
    void Add(int64_t step);
    std::string Text() const;  // "3 of its events, of steps 10 to 30"
  };
  struct Waiting {
    size_t bytes;
    int64_t step;
  };
  bool Open();
  void Flush();
  void Fail(const char* what);

  const std::string path_;
  const Warn warn_;
  UniqueFd file_;
  std::string pending_;  // records that the disk has not taken; it may have the first bytes of one
  std::deque<Waiting> waiting_;  // each of `pending_`
  Retry retry_;
  Events lost_;
};

}  // namespace muster
