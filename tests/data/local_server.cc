#include "tests/data/local_server.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <stdexcept>
#include <utility>

namespace muster::testing {
namespace {

void Require(bool condition, const char* what) {
  if (!condition) throw std::runtime_error(what);
}

}  // namespace

LocalServer::LocalServer(std::function<Answer(const std::string&)> respond)
    : respond_(std::move(respond)) {
  listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  Require(listener_ >= 0 && ::bind(listener_, generic, size) == 0 && ::listen(listener_, 8) == 0 &&
              ::getsockname(listener_, generic, &size) == 0 && ::pipe(stop_pipe_) == 0,
          "cannot start a server on 127.0.0.1");
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { Run(); });
}

LocalServer::~LocalServer() {
  [[maybe_unused]] const ssize_t sent = ::write(stop_pipe_[1], "x", 1);
  thread_.join();
  for (int fd : {listener_, stop_pipe_[0], stop_pipe_[1]}) ::close(fd);
}

std::string LocalServer::Url(const std::string& name) const {
  return fmt::format("http://127.0.0.1:{}/{}", port_, name);
}

std::vector<std::string> LocalServer::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

void LocalServer::Run() {
  for (;;) {
    std::array<pollfd, 2> waits = {{{listener_, POLLIN, 0}, {stop_pipe_[0], POLLIN, 0}}};
    ::poll(waits.data(), waits.size(), -1);
    if (waits[1].revents != 0) return;
    const int connection = ::accept(listener_, nullptr, nullptr);
    if (connection < 0) continue;
    Serve(connection);
    ::close(connection);
  }
}

void LocalServer::Serve(int connection) {
  std::string request;
  std::array<char, 4096> buffer;
  while (request.find("\r\n\r\n") == std::string::npos) {
    const ssize_t got = ::recv(connection, buffer.data(), buffer.size(), 0);
    if (got <= 0) return;
    request.append(buffer.data(), static_cast<size_t>(got));
  }
  {
    const std::lock_guard lock(mutex_);
    requests_.push_back(request);
  }
  const Answer answer = respond_(request);
  for (size_t sent = 0; sent < answer.bytes.size();) {
    const ssize_t now =
        ::send(connection, answer.bytes.data() + sent, answer.bytes.size() - sent, MSG_NOSIGNAL);
    if (now <= 0) return;
    sent += static_cast<size_t>(now);
  }
  if (!answer.hangs) return;
  // Waits until the server ends or the client disconnects.
  std::array<pollfd, 2> waits = {{{connection, POLLIN, 0}, {stop_pipe_[0], POLLIN, 0}}};
  ::poll(waits.data(), waits.size(), -1);
}

std::string Ok(const std::string& body, size_t sent) {
  return fmt::format("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                     body.size()) +
         body.substr(0, sent);
}

std::string Ranged(const std::string& request, const std::string& body, size_t sent) {
  const std::string key = "Range: bytes=";
  const size_t at = request.find(key);
  if (at == std::string::npos) return Ok(body, sent);
  const size_t first = std::stoul(request.substr(at + key.size()));
  return fmt::format(
             "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {}-{}/{}\r\n"
             "Content-Length: {}\r\nConnection: close\r\n\r\n",
             first, body.size() - 1, body.size(), body.size() - first) +
         body.substr(first, sent);
}

}  // namespace muster::testing
