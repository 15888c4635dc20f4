// A file of TensorBoard's events. Its records (TensorFlow's TFRecord), all numbers little-endian:
//
//   uint64 length · uint32 masked CRC-32C of these 8 bytes · the event · uint32 masked CRC-32C of
//   it
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "common/base/background_thread.h"
#include "common/base/unique_fd.h"
#include "proto/tensorboard.pb.h"

namespace muster {

// One record.
std::string FrameRecord(const std::string& event);

// Seconds, as a wall_time is given.
double UnixTime();

// Whether the event files in `dir` have a value of this tag and step that still counts.
bool HaveEvent(const std::string& dir, const std::string& tag, int64_t step);

// Events are put together, framed and written by a thread of the caller's, in order, and can be
// read as soon as that is done. What cannot be written, or is too much for a slow disk, is lost;
// TakeTrouble says so.
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

  // What a person should know, once.
  std::optional<std::string> TakeTrouble();
  const std::string& path() const { return path_; }

 private:
  struct Shared;  // with the thread
  std::string path_;
  BackgroundThread& thread_;
  std::shared_ptr<Shared> shared_;
};

}  // namespace muster
