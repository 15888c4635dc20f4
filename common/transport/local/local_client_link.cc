#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <exception>
#include <mutex>
#include <utility>

#include "common/base/error.h"
#include "common/base/fd.h"
#include "common/base/resource_limits.h"
#include "common/link/epoll.h"
#include "common/transport/local/local_address.h"
#include "common/transport/local/local_connection.h"
#include "common/transport/local/local_link.h"

namespace muster {
namespace {

class LocalClientLink : public ClientLink {
 public:
  explicit LocalClientLink(LocalConnection connection) : connection_(std::move(connection)) {}

  const char* transport() const override { return "shared memory"; }
  bool shares_memory() const override { return true; }
  bool any_thread() const override { return true; }
  int fd() const override { return connection_.fd(); }
  bool Pending() override { return connection_.Pending(); }
  bool PrepareToSleep() override;
  std::optional<FromServer> Receive() override;
  bool Send(const wire::WorkerMessage& message, std::span<const std::byte> tensor,
            Release release) override;
  bool Deliver() override;
  void Flush(std::chrono::milliseconds limit) override;

 private:
  std::unique_ptr<SharedTensors> Attach();

  std::mutex sending_;
  LocalConnection connection_;
  PollInterval socket_;
  bool lost_ = false;
  std::string sent_, taken_;  // buffers for the current messages
  std::vector<UniqueFd> handed_over_;
};

// Maps the memory that was handed over with Welcome. All later messages arrive through it.
std::unique_ptr<SharedTensors> LocalClientLink::Attach() {
  if (handed_over_.size() != 4) {
    throw HandOverFailed(fmt::format(
        "the server handed over {} memory regions with Welcome, expected 4: weights, gradient "
        "buffer, and messages in both directions",
        handed_over_.size()));
  }
  using Access = SharedMemory::Access;
  try {
    auto shared = std::make_unique<SharedTensors>();
    shared->weight_buffers = SharedMemory::Map(std::move(handed_over_[0]), Access::kRead);
    shared->gradient_buffers = SharedMemory::Map(std::move(handed_over_[1]), Access::kReadWrite);
    const std::lock_guard lock(sending_);
    connection_.Attach(SharedMemory::Map(std::move(handed_over_[2]), Access::kReadWrite),
                       SharedMemory::Map(std::move(handed_over_[3]), Access::kRead));
    handed_over_.clear();
    return shared;
  } catch (const Error& error) {
    throw HandOverFailed(error.what());
  }
}

bool LocalClientLink::PrepareToSleep() {
  connection_.PrepareToSleep();
  socket_.DueNow();
  (void)Deliver();  // the ring may have room by now
  return !connection_.Pending();
}

std::optional<FromServer> LocalClientLink::Receive() {
  connection_.WakeUp();
  if (lost_) return std::nullopt;
  switch (connection_.Receive(socket_.Due(), taken_, handed_over_)) {
    case LocalConnection::Status::kNothing:
      return std::nullopt;
    case LocalConnection::Status::kClosed:
      lost_ = true;
      return FromServer{FromServer::Kind::kLost, {}, {}};
    case LocalConnection::Status::kMalformed:
      if (!connection_.attached()) {
        throw HandOverFailed("could not receive the shared memory that comes with Welcome" +
                             OpenFilesHint());
      }
      return FromServer{FromServer::Kind::kMalformed, {}, {}};
    case LocalConnection::Status::kMessage:
      break;
  }
  FromServer result{FromServer::Kind::kMalformed, {}, {}};
  if (!result.message.ParseFromString(taken_)) return result;
  result.kind = FromServer::Kind::kMessage;
  if (!handed_over_.empty()) result.shared = Attach();
  return result;
}

bool LocalClientLink::Send(const wire::WorkerMessage& message, std::span<const std::byte>,
                           Release release) {
  const std::lock_guard lock(sending_);
  message.SerializeToString(&sent_);
  connection_.Append(sent_);
  if (release.call != nullptr) release.call(release.hint);  // the server reads the tensor in place
  return true;
}

bool LocalClientLink::Deliver() {
  const std::lock_guard lock(sending_);
  return connection_.Flush();
}

void LocalClientLink::Flush(std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  const std::lock_guard lock(sending_);
  while (connection_.Flush() && connection_.unsent() > 0 &&
         std::chrono::steady_clock::now() < deadline) {
    pollfd socket{connection_.fd(), 0, 0};
    if (connection_.WaitsForSocket()) socket.events = POLLOUT;
    if (::poll(&socket, 1, 2) < 0 || (socket.revents & POLLHUP) != 0) return;
  }
}

std::unique_ptr<ClientLink> ConnectTo(const std::string& endpoint) {
  const LocalAddress address(endpoint);
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid() || ::connect(fd.get(), address.get(), address.size) != 0) {
    throw Error(ExitCode::kPeerFailed, "{}: {}", endpoint, ErrorText(errno));
  }
  LocalConnection connection{PacketSocket(std::move(fd))};
  // The token must not reach another user's process.
  if (const int64_t user = connection.PeerUser(); user != static_cast<int64_t>(::geteuid())) {
    throw Error(ExitCode::kPeerFailed,
                "{}: the listening process belongs to user {}, expected user {}", endpoint, user,
                ::geteuid());
  }
  return std::make_unique<LocalClientLink>(std::move(connection));
}

}  // namespace

std::unique_ptr<ClientLink> ConnectLocal(const std::string& endpoint, const LinkOptions& options) {
  std::exception_ptr first;
  for (const std::string& one : StandInsFor(endpoint, options.token)) {
    try {
      return ConnectTo(one);
    } catch (const Error&) {
      if (!first) first = std::current_exception();
    }
  }
  std::rethrow_exception(first);
}

}  // namespace muster
