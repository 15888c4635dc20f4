// A TensorBoard event file (event_records.h).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>

#include "common/base/fd.h"
#include "common/base/retry.h"
#include "proto/tensorboard.pb.h"

namespace muster {

// The current time in seconds, as in wall_time.
double UnixTime();

// Not thread-safe.
class EventFile {
 public:
  // Receives each warning once.
  using Warn = std::function<void(const std::string& message)>;

  // Creates events.out.tfevents.* in `dir` and writes the version of the format. TensorBoard
  // ignores data in earlier files after `steps_done` steps, because the resumed run writes it
  // again.
  EventFile(const std::string& dir, int64_t steps_done, Warn warn);
  EventFile(const EventFile&) = delete;

  // Writes an event and flushes it. If the disk is full, all small events and a few megabytes of
  // large ones stay in memory. Others are lost, which is reported.
  void Append(const tensorboard::Event& event);
  // Records that an event of this step was lost elsewhere.
  void Lose(int64_t step);
  void Sync() const;
  // Retries after the interval of Retry, if events are pending.
  void TryAgain();
  // Disables retries from now on.
  void EndRetries() { retry_.End(); }
  // Retries, and returns which appended events are missing from the file and why, or "".
  std::string Missing();
  const std::string& path() const { return path_; }

 private:
  // A number of events and their range of steps.
  struct Events {
    int64_t count = 0, first = 0, last = 0;
    void Add(int64_t step);
    std::string Text() const;  // "3 events of steps 10 to 30"
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
  std::string pending_;          // unwritten records; the first may be partly written
  std::deque<Waiting> waiting_;  // the records in pending_
  Retry retry_;
  Events lost_;
};

}  // namespace muster
