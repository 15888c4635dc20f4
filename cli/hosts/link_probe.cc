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
#include "common/base/resource_limits.h"
#include "common/base/text.h"
#include "common/link/tcp_address.h"

namespace muster {
namespace {

constexpr int kWaitMs = 5000;          // for the next bytes of the other end
constexpr double kMeasureS = 8;        // for all of a measurement
constexpr double kServeS = 60;         // for the other end: hosts are measured one by one
constexpr int kIntroductionMs = 6000;  // longer than a connection takes
constexpr size_t kMostSilent = 64;
constexpr size_t kSecretBytes = 32;
constexpr int kRounds = 10;
constexpr double kSecondsEachWay = 0.3, kLeastSeconds = 0.15;
constexpr size_t kMostBytesEachWay = 1ull << 30;

// A request is a letter and a number of bytes.
enum class Ask : char { kTime = 'T', kReceive = 'R', kSend = 'S' };
struct Request {
  Ask ask;
  uint64_t bytes;
};
struct BothClocks {
  double wall, monotonic;  // seconds
};
constexpr size_t kRequestBytes = 1 + sizeof(uint64_t);

double MonotonicSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double WallClock() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// A connection, and when all must be done.
struct Wire {
  int fd;
  double end;
};

void Await(const Wire& wire, short what, int wait_ms = kWaitMs) {
  const double left_ms = std::max(0.0, 1000 * (wire.end - MonotonicSeconds()));
  pollfd event{.fd = wire.fd, .events = what};
  int ready;
  do {
    ready = ::poll(&event, 1, static_cast<int>(std::min<double>(wait_ms, left_ms)));
  } while (ready < 0 && errno == EINTR);
  if (ready > 0) return;
  if (left_ms > wait_ms) throw Error(ExitCode::kFailure, "no bytes within {} s", wait_ms / 1000);
  throw Error(ExitCode::kFailure, "the network is too slow to measure");
}

// Returns false at the end of the connection.
bool Receive(const Wire& wire, void* place, size_t bytes, int wait_ms = kWaitMs) {
  for (char* at = static_cast<char*>(place); bytes > 0;) {
    Await(wire, POLLIN, wait_ms);
    const ssize_t got = ::recv(wire.fd, at, bytes, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<size_t>(got);
  }
  return true;
}

void Send(const Wire& wire, const void* place, size_t bytes) {
  for (const char* at = static_cast<const char*>(place); bytes > 0;) {
    Await(wire, POLLOUT);
    const ssize_t sent = ::send(wire.fd, at, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (sent < 0) throw Error(ExitCode::kFailure, "{}", ErrorText(errno));
    at += sent;
    bytes -= static_cast<size_t>(sent);
  }
}

template <typename T>
T ReceiveValue(const Wire& wire) {
  T value;
  if (!Receive(wire, &value, sizeof value)) {
    throw Error(ExitCode::kFailure, "the connection ended early");
  }
  return value;
}

void SendRequest(const Wire& wire, Ask ask, uint64_t bytes = 0) {
  std::array<char, kRequestBytes> words;
  words[0] = static_cast<char>(ask);
  std::memcpy(words.data() + 1, &bytes, sizeof bytes);
  Send(wire, words.data(), words.size());
}

// Both hosts have the same version of Muster, but perhaps another byte order; then the numbers are
// useless, but nothing fails.
bool ReceiveRequest(const Wire& wire, Request& request) {
  std::array<char, kRequestBytes> words;
  if (!Receive(wire, words.data(), words.size(), static_cast<int>(1000 * kServeS))) return false;
  request.ask = static_cast<Ask>(words[0]);
  std::memcpy(&request.bytes, words.data() + 1, sizeof request.bytes);
  return true;
}

void SendMany(const Wire& wire, uint64_t bytes) {
  const std::vector<char> block(1 << 20);
  for (uint64_t left = bytes; left > 0;) {
    const size_t part = std::min<uint64_t>(left, block.size());
    Send(wire, block.data(), part);
    left -= part;
  }
}

void ReceiveMany(const Wire& wire, uint64_t bytes) {
  std::vector<char> block(1 << 20);
  for (uint64_t left = bytes; left > 0;) {
    const size_t part = std::min<uint64_t>(left, block.size());
    if (!Receive(wire, block.data(), part)) {
      throw Error(ExitCode::kFailure, "the connection ended early");
    }
    left -= part;
  }
}

// The bytes per second in one direction. Begins with few bytes, for slow networks, and ends with
// about as many as the network carries in kSecondsEachWay.
double Bandwidth(const Wire& wire, bool to_peer) {
  for (uint64_t bytes = 1 << 18;;) {
    const double begin = MonotonicSeconds();
    SendRequest(wire, to_peer ? Ask::kReceive : Ask::kSend, bytes);
    if (to_peer) {
      SendMany(wire, bytes);
      (void)ReceiveValue<char>(wire);
    } else {
      ReceiveMany(wire, bytes);
    }
    const double took = MonotonicSeconds() - begin;
    const double rate = static_cast<double>(bytes) / std::max(took, 1e-6);
    if (took >= kLeastSeconds || bytes >= kMostBytesEachWay) return rate;
    bytes = std::clamp(static_cast<uint64_t>(kSecondsEachWay * rate), 2 * bytes, 8 * bytes);
    bytes = std::min<uint64_t>(bytes, kMostBytesEachWay);
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

std::vector<int> ProbeListener::fds() const {
  std::vector<int> fds{fd_.get()};
  for (const Peer& peer : silent_) fds.push_back(peer.fd.get());
  return fds;
}

ProbeListener::Peer ProbeListener::Take() {
  for (size_t taken = 0; taken < kMostSilent; ++taken) {
    UniqueFd fd(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!fd.valid()) break;
    NoDelay(fd.get());
    if (silent_.size() == kMostSilent) silent_.pop_front();
    silent_.push_back({.fd = std::move(fd)});
  }
  for (auto peer = silent_.begin(); peer != silent_.end();) {
    std::array<char, kSecretBytes> bytes;
    const ssize_t got =
        ::recv(peer->fd.get(), bytes.data(), kSecretBytes - peer->secret.size(), MSG_DONTWAIT);
    if (got > 0) peer->secret.append(bytes.data(), static_cast<size_t>(got));
    const bool ended = got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
    if (!ended && peer->secret.size() < kSecretBytes) {
      ++peer;
      continue;
    }
    Peer taken = std::move(*peer);
    peer = silent_.erase(peer);
    if (!ended) return taken;
  }
  return {};
}

UniqueFd ProbeListener::Await(const std::string& secret) {
  const double end = MonotonicSeconds() + kIntroductionMs / 1000.0;
  for (double left = kIntroductionMs; left > 0; left = 1000 * (end - MonotonicSeconds())) {
    while (true) {
      Peer peer = Take();
      if (!peer.fd.valid()) break;
      if (peer.secret == secret) return std::move(peer.fd);
    }
    std::vector<pollfd> events;
    for (const int fd : fds()) events.push_back({.fd = fd, .events = POLLIN});
    ::poll(events.data(), events.size(), static_cast<int>(left) + 1);
  }
  return {};
}

LinkFacts MeasureLink(const UniqueFd& peer, bool bandwidth) {
  const Wire wire{peer.get(), MonotonicSeconds() + kMeasureS};
  LinkFacts facts;
  double shortest = 1e9;
  for (int round = 0; round < kRounds; ++round) {
    const double begin = MonotonicSeconds(), wall = WallClock();
    SendRequest(wire, Ask::kTime);
    const auto theirs = ReceiveValue<BothClocks>(wire);
    const double took = MonotonicSeconds() - begin;
    if (took >= shortest) continue;
    shortest = took;
    // The peer read its clocks in the middle of the round trip.
    facts.clock_offset_s = theirs.wall - (wall + took / 2);
    facts.monotonic_offset_s = theirs.monotonic - (begin + took / 2);
  }
  facts.latency_s = shortest / 2;
  if (bandwidth) {
    facts.to_peer = Bandwidth(wire, /*to_peer=*/true);
    facts.from_peer = Bandwidth(wire, /*to_peer=*/false);
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
  const Wire wire{fd.get(), MonotonicSeconds() + kServeS};
  Send(wire, secret.data(), secret.size());
  std::string address = AddressOf(fd.get());
  for (Request request; ReceiveRequest(wire, request);) {
    if (request.ask == Ask::kTime) {
      const BothClocks now{.wall = WallClock(), .monotonic = MonotonicSeconds()};
      Send(wire, &now, sizeof now);
    } else if (request.ask == Ask::kReceive) {
      ReceiveMany(wire, std::min<uint64_t>(request.bytes, kMostBytesEachWay));
      Send(wire, "k", 1);
    } else {
      SendMany(wire, std::min<uint64_t>(request.bytes, kMostBytesEachWay));
    }
  }
  return address;
}

}  // namespace muster
