#include "common/transport/zmq/zmq_greeting.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <string_view>

#include "common/base/fd.h"
#include "common/link/tcp_address.h"

namespace muster {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// The ZMTP 3 greeting has 10 bytes of signature, 2 of version and 20 of mechanism. The rest is not
// needed.
constexpr size_t kGreeting = 64, kMechanismAt = 12, kMechanismBytes = 20;

// The part of the greeting that is sent. If the mechanism were sent too, a peer with another
// mechanism would hang up before sending its own.
constexpr std::string_view kBeginning{"\xff\0\0\0\0\0\0\0\1\x7f\3\0", kMechanismAt};

bool Await(int fd, short event, steady_clock::time_point until) {
  pollfd ready{fd, event, 0};
  const auto left = std::chrono::ceil<milliseconds>(until - steady_clock::now());
  return left.count() > 0 && ::poll(&ready, 1, static_cast<int>(left.count())) == 1;
}

}  // namespace

std::string MechanismOf(const std::string& address, milliseconds limit) {
  const auto until = steady_clock::now() + limit;
  const UniqueFd fd = ResolvedAddress(TcpAddress::Parse(address)).StartToConnect();
  if (!fd.valid() || !Await(fd.get(), POLLOUT, until)) return "";
  if (::send(fd.get(), kBeginning.data(), kBeginning.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(kBeginning.size())) {
    return "";
  }
  std::string greeting(kGreeting, 0);
  for (size_t have = 0; have < kGreeting;) {
    if (!Await(fd.get(), POLLIN, until)) return "";
    const ssize_t n = ::recv(fd.get(), greeting.data() + have, kGreeting - have, 0);
    if (n < 0 && errno == EAGAIN) continue;
    if (n <= 0) return "";
    have += static_cast<size_t>(n);
  }
  if (greeting[0] != '\xff' || greeting[10] < 3) return "";
  const std::string name = greeting.substr(kMechanismAt, kMechanismBytes);
  return name.substr(0, std::min(name.find('\0'), name.size()));
}

}  // namespace muster
