// Events on their way to the launcher, one line each, over a pipe that may be full.
#pragma once

#include <string>

#include "proto/events.pb.h"

namespace muster {

// Used by the server's loop alone.
class EventPipe {
 public:
  // `fd` may be -1: nobody wants events. It becomes non-blocking, and stays its opener's.
  explicit EventPipe(int fd);

  // Waits up to a second for a slow reader; what is of a moment, progress and beats, is dropped
  // then.
  void Send(const events::Event& event);

 private:
  int fd_;
  std::string unsent_;  // the rest of an event of which the pipe took a part
};

}  // namespace muster
