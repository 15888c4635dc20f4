// The helper process of a program that trains its own model, and the frames to and from it
// (common/program/messages.h).
#pragma once

#include <sys/types.h>

#include <string>

#include "common/program/messages.h"

namespace muster::program {

class Helper {
 public:
  Helper() = default;
  // Waits a few seconds until the helper has said goodbye to the server, then kills it.
  ~Helper();
  Helper(const Helper&) = delete;

  // Starts the helper for the job that the environment names, or connects to the server that has
  // started this program to update the weights. Returns a muster_code, and in `why` what is wrong.
  int Start(std::string& why);

  // Whether the other end is the server.
  bool is_server() const { return fd_ >= 0 && pid_ < 0; }

  // Send and Receive return false if the helper is gone. `with_fd` is sent along unless it is -1.
  bool Send(Kind kind, const void* body, size_t bytes, int with_fd = -1);
  bool Receive(Kind& kind, std::string& body);
  // Waits for a frame, at most for this time; negative: without limit. Returns false if there is
  // none, or if a signal arrived during a limited wait.
  bool Await(double seconds);

 private:
  bool Read(void* to, size_t bytes);

  int fd_ = -1;
  pid_t pid_ = -1;
};

}  // namespace muster::program
