// A web server on 127.0.0.1 for tests: says what it is told to say, and may hang or hang up.
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace muster::testing {

// Answers one connection after another on a port that the system picks; each connection gets one
// answer and is closed.
class LocalServer {
 public:
  struct Answer {
    std::string bytes;   // status line, headers and body, as they go over the wire
    bool hangs = false;  // keep the connection open after that, until the server ends
  };
  // Called with the request's first lines, on the server's thread.
  explicit LocalServer(std::function<Answer(const std::string& request)> respond);
  ~LocalServer();

  std::string Url(const std::string& name) const;
  std::vector<std::string> requests() const;

 private:
  void Run();
  void Serve(int connection);

  const std::function<Answer(const std::string&)> respond_;
  int listener_ = -1;
  int stop_pipe_[2] = {-1, -1};
  int port_ = 0;
  mutable std::mutex mutex_;
  std::vector<std::string> requests_;
  std::thread thread_;
};

// "HTTP/1.1 200 OK" with this body, or as much of it as `sent` says.
std::string Ok(const std::string& body, size_t sent = std::string::npos);
// What a server that can resume answers to a request with "Range: bytes=N-", and Ok without.
std::string Ranged(const std::string& request, const std::string& body,
                   size_t sent = std::string::npos);

}  // namespace muster::testing
