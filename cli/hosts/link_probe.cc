#include "cli/hosts/link_probe.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <vector>

#include "common/base/error.h"
#include "common/base/text.h"
#include "common/link/tcp_address.h"

namespace muster {
namespace {

constexpr int kWaitMs = 5000;   // for the next bytes of the other end
constexpr int kAskMs = 60'000;  // for the next request: other hosts are measured one by one
constexpr size_t kSecretBytes = 32;
constexpr int kRounds = 10;
constexpr double kSecondsEachWay = 0.3;
constexpr size_t kMostBytesEachWay = 1ull << 30;

// A request is a letter and a number of bytes.
enum class Ask : char { kTime = 'T', kReceive = 'R', kSend = 'S' };
struct Request {
  Ask ask;
  uint64_t bytes;
};
constexpr size_t kRequestBytes = 1 + sizeof(uint64_t);

double MonotonicSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double WallClock() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

void Await(int fd, short what, int wait_ms = kWaitMs) {
  pollfd event{.fd = fd, .events = what};
  int ready;
  do {
    ready = ::poll(&event, 1, wait_ms);
  } while (ready < 0 && errno == EINTR);
  if (ready > 0) return;
  throw Error(ExitCode::kFailure, "no bytes within {} s", wait_ms / 1000);
}

// Returns false at the end of the connection.
bool Receive(int fd, void* place, size_t bytes, int wait_ms = kWaitMs) {
  for (char* at = static_cast<char*>(place); bytes > 0;) {
    Await(fd, POLLIN, wait_ms);
    const ssize_t got = ::recv(fd, at, bytes, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<size_t>(got);
  }
  return true;
}

void Send(int fd, const void* place, size_t bytes) {
  for (const char* at = static_cast<const char*>(place); bytes > 0;) {
    Await(fd, POLLOUT);
    const ssize_t sent = ::send(fd, at, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (sent < 0) throw Error(ExitCode::kFailure, "{}", ErrorText(errno));
    at += sent;
    bytes -= static_cast<size_t>(sent);
  }
}

template <typename T>
T ReceiveValue(int fd) {
  T value;
  if (!Receive(fd, &value, sizeof value)) {
    throw Error(ExitCode::kFailure, "the connection ended early");
  }
  return value;
}

void SendRequest(int fd, Ask ask, uint64_t bytes = 0) {
  std::array<char, kRequestBytes> words;
  words[0] = static_cast<char>(ask);
  std::memcpy(words.data() + 1, &bytes, sizeof bytes);
  Send(fd, words.data(), words.size());
}

// Both hosts have the same version of Muster, but perhaps another byte order; then the numbers are
// useless, but nothing fails.
bool ReceiveRequest(int fd, Request& request) {
  std::array<char, kRequestBytes> words;
  if (!Receive(fd, words.data(), words.size(), kAskMs)) return false;
  request.ask = static_cast<Ask>(words[0]);
  std::memcpy(&request.bytes, words.data() + 1, sizeof request.bytes);
  return true;
}

void SendMany(int fd, uint64_t bytes) {
  const std::vector<char> block(1 << 20);
  for (uint64_t left = bytes; left > 0;) {
    const size_t part = std::min<uint64_t>(left, block.size());
    Send(fd, block.data(), part);
    left -= part;
  }
}

void ReceiveMany(int fd, uint64_t bytes) {
  std::vector<char> block(1 << 20);
  for (uint64_t left = bytes; left > 0;) {
    const size_t part = std::min<uint64_t>(left, block.size());
    if (!Receive(fd, block.data(), part)) {
      throw Error(ExitCode::kFailure, "the connection ended early");
    }
    left -= part;
  }
}

// The bytes per second in one direction. Begins with few bytes, for slow networks.
double Bandwidth(int fd, bool to_peer) {
  for (uint64_t bytes = 1 << 18;; bytes *= 4) {
    const double begin = MonotonicSeconds();
    SendRequest(fd, to_peer ? Ask::kReceive : Ask::kSend, bytes);
    if (to_peer) {
      SendMany(fd, bytes);
      (void)ReceiveValue<char>(fd);
    } else {
      ReceiveMany(fd, bytes);
    }
    const double took = MonotonicSeconds() - begin;
    if (took >= kSecondsEachWay || bytes >= kMostBytesEachWay) {
      return static_cast<double>(bytes) / took;
    }
  }
}

void NoDelay(int fd) {
  const int yes = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

std::string AddressOf(int fd, uint16_t* port = nullptr) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  auto* const address = reinterpret_cast<sockaddr*>(&storage);
  if (::getsockname(fd, address, &size) != 0) return "";
  std::array<char, NI_MAXHOST> text{};
  (void)::getnameinfo(address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
  if (port != nullptr) {
    *port = ntohs(storage.ss_family == AF_INET6
                      ? reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port
                      : reinterpret_cast<const sockaddr_in*>(&storage)->sin_port);
  }
  return text.data();
}

}  // namespace

ProbeListener::ProbeListener(const std::string& address) {
  const ResolvedAddress resolved(TcpAddress{.host = address});
  fd_ = resolved.Listen();
  if (!fd_.valid()) {
    throw Error(ExitCode::kFailure, "cannot listen at {}: {}", address, ErrorText(errno));
  }
  uint16_t port = 0;
  (void)AddressOf(fd_.get(), &port);
  endpoint_ = TcpAddress{address, port}.ToEndpoint();
}

ProbeListener::Peer ProbeListener::Accept() const {
  Peer peer;
  std::array<char, kSecretBytes> secret;
  try {
    Await(fd_.get(), POLLIN);
    peer.fd.Reset(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!peer.fd.valid()) return peer;  // the connection has ended already
    NoDelay(peer.fd.get());
    if (Receive(peer.fd.get(), secret.data(), secret.size())) {
      peer.secret.assign(secret.data(), secret.size());
    }
  } catch (const Error&) {  // a stranger that says nothing
  }
  return peer;
}

LinkFacts MeasureLink(const UniqueFd& peer, bool bandwidth) {
  const int fd = peer.get();
  LinkFacts facts;
  double shortest = 1e9;
  for (int round = 0; round < kRounds; ++round) {
    const double begin = MonotonicSeconds(), wall = WallClock();
    SendRequest(fd, Ask::kTime);
    const double theirs = ReceiveValue<double>(fd);
    const double took = MonotonicSeconds() - begin;
    if (took >= shortest) continue;
    shortest = took;
    // The peer read its clock in the middle of the round trip.
    facts.clock_offset_s = theirs - (wall + took / 2);
  }
  facts.latency_s = shortest / 2;
  if (bandwidth) {
    facts.to_peer = Bandwidth(fd, /*to_peer=*/true);
    facts.from_peer = Bandwidth(fd, /*to_peer=*/false);
  }
  return facts;
}

std::string ServeProbe(const std::string& endpoint, const std::string& secret) {
  const UniqueFd fd = ResolvedAddress(TcpAddress::Parse(endpoint)).StartToConnect();
  const auto refuse = [&](const std::string& why) {
    throw Error(ExitCode::kFailure, "cannot connect to {}: {}", endpoint, why);
  };
  if (!fd.valid()) refuse(ErrorText(errno));
  pollfd event{.fd = fd.get(), .events = POLLOUT};
  if (::poll(&event, 1, kWaitMs) <= 0) refuse(fmt::format("no answer in {} s", kWaitMs / 1000));
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) refuse(ErrorText(error));
  NoDelay(fd.get());
  Send(fd.get(), secret.data(), secret.size());
  std::string address = AddressOf(fd.get());
  for (Request request; ReceiveRequest(fd.get(), request);) {
    if (request.ask == Ask::kTime) {
      const double now = WallClock();
      Send(fd.get(), &now, sizeof now);
    } else if (request.ask == Ask::kReceive) {
      ReceiveMany(fd.get(), std::min<uint64_t>(request.bytes, kMostBytesEachWay));
      Send(fd.get(), "k", 1);
    } else {
      SendMany(fd.get(), std::min<uint64_t>(request.bytes, kMostBytesEachWay));
    }
  }
  return address;
}

}  // namespace muster
