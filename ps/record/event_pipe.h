// Sends events to the launcher, one per line, through a pipe that may be full.
#pragma once

#include <string>

#include "proto/events.pb.h"

namespace muster {

// Used only on the loop thread.
class EventPipe {
 public:
  // `fd` may be -1: no events. It is made non-blocking; the caller keeps ownership.
  explicit EventPipe(int fd);

  // Waits up to a second for a slow reader, but only once until it reads again, and with the
  // summary. Progress and heartbeats are dropped instead, and log lines of which it has many.
  void Send(const events::Event& event);

 private:
  int fd_;
  std::string unsent_;    // the unsent rest of an event
  bool stalled_ = false;  // the reader did not read for a second
};

}  // namespace muster
