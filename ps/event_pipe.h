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

  enum class Priority {
    kProgress,  // dropped if the reader is slow
    kMust,      // waits up to a second for the reader
  };
  void Send(const events::Event& event, Priority priority);

 private:
  int fd_;
  std::string unsent_;  // the rest of an event of which the pipe took a part
};

}  // namespace muster
