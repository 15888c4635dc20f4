// An attacker without the job's token. Attacks a server for a limited time, over plain sockets:
//
//   stranger ENDPOINT MODE SECONDS
//
// ENDPOINT is tcp://127.0.0.1:PORT or ipc://@NAME. MODE is one of:
//   flood       sends small garbage messages and never reads; some connections are cut repeatedly
//   more        frames that have the MORE flag and never end
//   unfinished  frames of the largest accepted size without their last byte, on many connections
//   giant       the same with 4 MiB, more than the server accepts
//   text        messages with invalid UTF-8
//   idle        connects and sends nothing
// The prefix plain- (plain-flood …) starts the connection with ZMTP's PLAIN mechanism and a wrong
// password, and curve- with CURVE and a box that cannot be decrypted. The default is NULL. Prints
// what it did. SIGTERM ends it early with success.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostSent = size_t{32} << 30;

volatile std::sig_atomic_t told_to_end = 0;

struct Address {
  sockaddr_storage bytes{};
  socklen_t size = 0;
};

Address Parse(const std::string& endpoint) {
  Address result;
  if (endpoint.starts_with("ipc://@")) {
    auto& address = reinterpret_cast<sockaddr_un&>(result.bytes);
    const std::string name = endpoint.substr(7);
    if (name.size() >= sizeof address.sun_path) std::exit(2);
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    result.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    return result;
  }
  auto& address = reinterpret_cast<sockaddr_in&>(result.bytes);
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port =
      htons(static_cast<uint16_t>(std::atoi(endpoint.c_str() + endpoint.rfind(':') + 1)));
  result.size = sizeof address;
  return result;
}

enum class Mechanism { kNull, kPlain, kCurve };

// The ZMTP 3.0 greeting of a client: signature, version, mechanism.
std::string Greeting(Mechanism mechanism) {
  std::string greeting("\xff\0\0\0\0\0\0\0\1\x7f\3\0", 12);
  greeting += mechanism == Mechanism::kPlain   ? "PLAIN"
              : mechanism == Mechanism::kCurve ? "CURVE"
                                               : "NULL";
  greeting.resize(64, 0);
  return greeting;
}

// Returns the greeting and the mechanism's first command.
std::string Begin(Mechanism mechanism) {
  const std::string greeting = Greeting(mechanism);
  std::string command;
  if (mechanism == Mechanism::kCurve) {
    command = std::string("\5HELLO\1\0", 8);
    command.resize(200, 'x');
  } else if (mechanism == Mechanism::kPlain) {
    command = std::string("\5HELLO") + std::string("\6muster") + std::string("\5wrong");
  } else {
    command = std::string("\5READY") + "\13Socket-Type" + std::string("\0\0\0\6", 4) + "DEALER";
  }
  return greeting + std::string("\4") + static_cast<char>(command.size()) + command;
}

std::string Frame(const std::string& bytes, bool more) {
  std::string frame(1, more ? '\1' : '\0');
  if (bytes.size() < 256) return frame + static_cast<char>(bytes.size()) + bytes;
  frame[0] |= 2;
  for (int shift = 56; shift >= 0; shift -= 8) frame += static_cast<char>(bytes.size() >> shift);
  return frame + bytes;
}

std::string Repeated(const std::string& frame, size_t bytes) {
  std::string all;
  while (all.size() < bytes) all += frame;
  return all;
}

// The data that a connection sends: `first`, and then `again` repeatedly.
struct Script {
  int connections;
  int short_lived = 0;  // the number of these that are cut every 50 ms
  std::string first, again;
};

Script ScriptFor(std::string mode) {
  const Mechanism mechanism = mode.starts_with("plain-")   ? Mechanism::kPlain
                              : mode.starts_with("curve-") ? Mechanism::kCurve
                                                           : Mechanism::kNull;
  if (mechanism != Mechanism::kNull) mode = mode.substr(6);
  const std::string begin = Begin(mechanism);
  if (mode == "flood") {
    // Invalid text makes the reader slow.
    return {70, 30, begin, Repeated(Frame("\x12\x04\x12\x02\xff\xfe", false), 16 << 10)};
  }
  if (mode == "more") return {8, 0, begin, Repeated(Frame("ab", true), 16 << 10)};
  if (mode == "unfinished" || mode == "giant") {
    // One piece plus the overhead of CURVE.
    const size_t bytes = mode == "giant" ? 4 << 20 : (256 + 1) << 10;
    std::string frame = Frame(std::string(bytes, 'x'), false);
    frame[0] |= 4;  // a command
    frame.pop_back();
    return {400, 0, Greeting(mechanism) + frame, ""};
  }
  if (mode == "text") {
    // WorkerMessage { hello { token: …  host: … } } with bytes that are not UTF-8.
    return {8, 0, begin,
            Repeated(Frame("\x12\x08\x12\x02\xff\xfe\x1a\x02\xff\xfe", false), 16 << 10)};
  }
  if (mode == "idle") return {400, 0, "", ""};
  std::fprintf(stderr, "stranger: unknown mode %s\n", mode.c_str());
  std::exit(2);
}

struct Connection {
  int fd = -1;
  size_t sent = 0;  // bytes of `first`, then of `again`
  bool began = false;
  Clock::time_point until;
};

class Stranger {
 public:
  Stranger(const Address& address, const Script& script)
      : address_(address), script_(script), connections_(script.connections) {}

  void Run(double seconds) {
    const auto end = Clock::now() + std::chrono::duration<double>(seconds);
    while (Clock::now() < end && told_to_end == 0) {
      bool busy = false;
      for (size_t i = 0; i < connections_.size(); ++i) busy = Advance(connections_[i], i) || busy;
      if (!busy) ::poll(nullptr, 0, 1);
    }
    std::printf("connected %ld times, refused or cut %ld times, sent %.1f MB\n", connected_, cut_,
                static_cast<double>(bytes_) * 1e-6);
  }

 private:
  bool Advance(Connection& connection, size_t number) {
    const auto now = Clock::now();
    const bool short_lived = number < static_cast<size_t>(script_.short_lived);
    if (connection.fd >= 0 && short_lived && now > connection.until) Close(connection, false);
    if (connection.fd < 0) {
      if (now < connection.until) return false;
      Open(connection);
      return connection.fd >= 0;
    }
    const std::string& what = connection.began ? script_.again : script_.first;
    if (what.size() == connection.sent || bytes_ > kMostSent) return Look(connection);
    const ssize_t n = ::send(connection.fd, what.data() + connection.sent,
                             what.size() - connection.sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) return Look(connection);
    if (n < 0) return Close(connection, true), false;
    bytes_ += static_cast<size_t>(n);
    connection.sent += static_cast<size_t>(n);
    if (connection.sent == what.size() && !script_.again.empty()) {
      connection.began = true;
      connection.sent = 0;
    }
    return true;
  }

  // Whether the other side has closed.
  bool Look(Connection& connection) {
    pollfd fd{connection.fd, POLLRDHUP, 0};
    if (::poll(&fd, 1, 0) == 1) Close(connection, true);
    return false;
  }

  void Open(Connection& connection) {
    // A full accept queue of the server must not block the other connections.
    connection.fd =
        ::socket(address_.bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (connection.fd < 0 ||
        (::connect(connection.fd, reinterpret_cast<const sockaddr*>(&address_.bytes),
                   address_.size) != 0 &&
         errno != EINPROGRESS)) {
      return Close(connection, true);
    }
    connection.sent = 0;
    connection.began = false;
    connection.until = Clock::now() + std::chrono::milliseconds(50);
    ++connected_;
  }

  void Close(Connection& connection, bool was_cut) {
    if (connection.fd >= 0) {
      const linger abrupt{1, 0};
      ::setsockopt(connection.fd, SOL_SOCKET, SO_LINGER, &abrupt, sizeof abrupt);
      ::close(connection.fd);
    }
    connection.fd = -1;
    if (was_cut) ++cut_;
    if (was_cut) connection.until = Clock::now() + std::chrono::milliseconds(10);
  }

  const Address address_;
  const Script script_;
  std::vector<Connection> connections_;
  size_t bytes_ = 0;
  long connected_ = 0, cut_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "stranger ENDPOINT MODE SECONDS\n");
    return 2;
  }
  ::alarm(300);
  std::signal(SIGTERM, [](int) { told_to_end = 1; });
  Stranger(Parse(argv[1]), ScriptFor(argv[2])).Run(std::atof(argv[3]));
  return 0;
}
