// A web server on 127.0.0.1 for tests. It sends given answers, and may hang or disconnect.
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace muster::testing {

// Answers one connection after another on a port chosen by the system. Each connection gets one
// answer and is closed.
class LocalServer {
 public:
  struct Answer {
    std::string bytes;   // status line, headers and body, as sent
    bool hangs = false;  // keeps the connection open until the server ends
  };
  // `respond` is called with the request's first lines, in the server's thread.
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

// "HTTP/1.1 200 OK" with this body, or only the first `sent` bytes of it.
std::string Ok(const std::string& body, size_t sent = std::string::npos);
// The answer of a server that supports "Range: bytes=N-", or Ok for requests without it.
std::string Ranged(const std::string& request, const std::string& body,
                   size_t sent = std::string::npos);

}  // namespace muster::testing
