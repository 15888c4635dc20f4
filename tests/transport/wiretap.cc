#include "tests/transport/wiretap.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utility>

#include "common/base/error.h"
#include "common/link/tcp_address.h"

namespace muster::testing {
namespace {

constexpr size_t kGreeting = 64;

sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return address;
}

bool SendAll(int fd, const std::string& bytes) {
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t n = ::send(fd, bytes.data() + at, bytes.size() - at, MSG_NOSIGNAL);
    if (n <= 0) return false;
    at += static_cast<size_t>(n);
  }
  return true;
}

// The size of the first frame, or 0 if it is incomplete.
size_t FrameBytes(const std::string& bytes) {
  if (bytes.size() < 2) return 0;
  const bool large = (bytes[0] & 2) != 0;
  const size_t head = large ? 9 : 2;
  if (bytes.size() < head) return 0;
  size_t length = 0;
  for (size_t i = 1; i < head; ++i) length = length << 8 | static_cast<unsigned char>(bytes[i]);
  return bytes.size() >= head + length ? head + length : 0;
}

}  // namespace

UniqueFd ConnectTo(const std::string& endpoint) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in address = Loopback(TcpAddress::Parse(endpoint).port);
  const auto* to = reinterpret_cast<const sockaddr*>(&address);
  if (::connect(fd.get(), to, sizeof address) != 0) fd.Reset();
  return fd;
}

Wiretap::Wiretap(const std::string& endpoint, Tamper tamper)
    : server_(endpoint),
      tamper_(std::move(tamper)),
      listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const sockaddr_in address = Loopback(0);
  MUSTER_CHECK(
      ::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  MUSTER_CHECK(::listen(listener_.get(), 16) == 0);
  acceptor_ = std::jthread([this] { Accept(); });
}

Wiretap::~Wiretap() {
  ::shutdown(listener_.get(), SHUT_RDWR);
  acceptor_.join();
  for (const UniqueFd& socket : sockets_) ::shutdown(socket.get(), SHUT_RDWR);
  threads_.clear();
}

std::string Wiretap::endpoint() const {
  sockaddr_in address{};
  socklen_t size = sizeof address;
  MUSTER_CHECK(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
  return fmt::format("tcp://127.0.0.1:{}", ntohs(address.sin_port));
}

std::string Wiretap::Heard(Way way) const {
  const std::lock_guard lock(mutex_);
  return heard_[static_cast<int>(way)];
}

void Wiretap::Accept() {
  for (;;) {
    UniqueFd worker(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!worker.valid()) return;
    UniqueFd server = ConnectTo(server_);
    if (!server.valid()) continue;
    const int near = worker.get(), far = server.get();
    sockets_.push_back(std::move(worker));
    sockets_.push_back(std::move(server));
    threads_.emplace_back([=, this] { Pass(near, far, Way::kToServer); });
    threads_.emplace_back([=, this] { Pass(far, near, Way::kToWorker); });
  }
}

// Only data after the greeting is changed.
void Wiretap::Pass(int from, int to, Way way) {
  std::string waiting, buffer(1 << 16, 0);
  size_t number = 0;
  bool greeted = false;
  for (;;) {
    const ssize_t n = ::recv(from, buffer.data(), buffer.size(), 0);
    if (n <= 0) break;
    const std::string bytes = buffer.substr(0, static_cast<size_t>(n));
    {
      const std::lock_guard lock(mutex_);
      heard_[static_cast<int>(way)] += bytes;
    }
    if (!tamper_) {
      if (!SendAll(to, bytes)) break;
      continue;
    }
    waiting += bytes;
    std::string out;
    if (!greeted) {
      // Each side waits for the start of the other's greeting before it continues its own.
      const size_t missing = kGreeting - number;
      out = waiting.substr(0, missing);
      waiting.erase(0, out.size());
      number += out.size();
      greeted = number == kGreeting;
      if (greeted) number = 0;
    }
    while (const size_t size = greeted ? FrameBytes(waiting) : 0) {
      out += Changed(way, number++, waiting.substr(0, size));
      waiting.erase(0, size);
    }
    if (!SendAll(to, out)) break;
  }
  ::shutdown(to, SHUT_RDWR);
  ::shutdown(from, SHUT_RDWR);
}

std::string Wiretap::Changed(Way way, size_t number, const std::string& frame) {
  const std::lock_guard lock(mutex_);
  std::string all;
  for (const std::string& one : tamper_(way, number, frame)) all += one;
  return all;
}

}  // namespace muster::testing
