#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <utility>

#include "common/base/error.h"
#include "common/base/resource_limits.h"
#include "common/base/unique_fd.h"
#include "common/link/look_interval.h"
#include "common/transport/local/local_address.h"
#include "common/transport/local/local_connection.h"
#include "common/transport/local/local_link.h"
#include "common/transport/local/slot_layout.h"

namespace muster {
namespace {

class LocalClientLink : public ClientLink {
 public:
  explicit LocalClientLink(LocalConnection connection) : connection_(std::move(connection)) {}

  const char* transport() const override { return "shared memory"; }
  bool any_thread() const override { return true; }
  int fd() const override { return connection_.fd(); }
  bool Pending() override { return connection_.Pending(); }
  bool may_spin() const override { return connection_.attached(); }
  bool PrepareToSleep() override;
  std::optional<FromServer> Receive() override;
  bool Send(const wire::WorkerMessage& message, std::span<const std::byte> tensor,
            Release release) override;
  bool Deliver() override;
  void Flush(std::chrono::milliseconds limit) override;
  void AllocateTensors(size_t arena_floats, size_t slots, WireType type) override;
  std::span<float> Slot(size_t slot) override {
    return slots_.writable_floats().subspan(slot * layout_.arena_floats, layout_.arena_floats);
  }
  std::span<const float> Plane(int plane) override {
    return planes_.floats().subspan(static_cast<size_t>(plane) * layout_.arena_floats,
                                    layout_.arena_floats);
  }
  void StoreWeights(int, size_t, const Payload&) override {}  // the server has written them

 private:
  FromServer Parse(const std::string& bytes);
  void Attach(const wire::Welcome& welcome);

  std::mutex sending_;
  LocalConnection connection_;
  LookInterval socket_;
  bool lost_ = false;
  std::string sent_, taken_;  // the messages in hand
  std::vector<UniqueFd> handed_over_;
  SlotLayout layout_;
  SharedMemory planes_, slots_;
};

FromServer LocalClientLink::Parse(const std::string& bytes) {
  FromServer result{FromServer::Kind::kMalformed, {}, {}};
  if (!result.message.ParseFromString(bytes)) return result;
  result.kind = FromServer::Kind::kMessage;
  if (result.message.has_welcome()) {
    try {
      Attach(result.message.welcome());
    } catch (const Error& error) {
      throw HandOverFailed(error.what());
    }
  }
  if (!result.message.has_weights_chunk()) return result;
  const wire::WeightsChunk& chunk = result.message.weights_chunk();
  const auto span = layout_.Chunk(chunk.chunk());
  if (!span || chunk.version() < 0) return result;
  const int plane = chunk.average() ? kAveragePlane : static_cast<int>(chunk.version() % 2);
  // Without room for it there is no average: no floats, which the client notices.
  if (planes_.bytes() < (plane + 1) * layout_.arena_floats * sizeof(float)) return result;
  const std::span<const float> floats = Plane(plane).subspan(span->begin, span->count);
  result.payload = {floats.data(), floats.size_bytes(), nullptr};
  return result;
}

// The memory of Welcome. Whatever follows it comes through that.
void LocalClientLink::Attach(const wire::Welcome& welcome) {
  if (handed_over_.size() != 4) {
    throw HandOverFailed(
        fmt::format("the server handed over {} memories with Welcome, expected 4: weights, slot, "
                    "and messages both ways (its log may say why)",
                    handed_over_.size()));
  }
  layout_ = SlotLayout(welcome);
  planes_ = SharedMemory::Map(std::move(handed_over_[0]), SharedMemory::Access::kRead);
  slots_ = SharedMemory::Map(std::move(handed_over_[1]), SharedMemory::Access::kReadWrite);
  const std::lock_guard lock(sending_);
  connection_.Attach(
      SharedMemory::Map(std::move(handed_over_[2]), SharedMemory::Access::kReadWrite),
      SharedMemory::Map(std::move(handed_over_[3]), SharedMemory::Access::kRead));
  handed_over_.clear();
}

bool LocalClientLink::PrepareToSleep() {
  connection_.PrepareToSleep();
  socket_.DueNow();
  (void)Deliver();  // there may be room by now
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
        throw HandOverFailed("the memory that comes with Welcome could not be received" +
                             OpenFilesHint());
      }
      return FromServer{FromServer::Kind::kMalformed, {}, {}};
    case LocalConnection::Status::kMessage:
      break;
  }
  return Parse(taken_);
}

bool LocalClientLink::Send(const wire::WorkerMessage& message, std::span<const std::byte>,
                           Release release) {
  const std::lock_guard lock(sending_);
  message.SerializeToString(&sent_);
  connection_.Append(sent_);
  if (release.call != nullptr) release.call(release.hint);  // lies where the server sees it
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

void LocalClientLink::AllocateTensors(size_t arena_floats, size_t slots, WireType type) {
  if (type != wire::FP32) {
    throw Error(ExitCode::kPeerFailed, "the server wants to round what lies in shared memory");
  }
  const size_t plane_bytes = arena_floats * sizeof(float);
  if (layout_.arena_floats != arena_floats || layout_.parts.size() != slots ||
      planes_.bytes() < 2 * plane_bytes || slots_.bytes() < slots * plane_bytes) {
    throw Error(ExitCode::kPeerFailed,
                "the server handed over {} bytes of weights and {} of slots, expected at least {} "
                "and {}",
                planes_.bytes(), slots_.bytes(), 2 * plane_bytes, slots * plane_bytes);
  }
}

}  // namespace

std::unique_ptr<ClientLink> ConnectLocal(const std::string& endpoint, const LinkOptions&) {
  const LocalAddress address(endpoint);
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid() || ::connect(fd.get(), address.get(), address.size) != 0) {
    throw Error(ExitCode::kPeerFailed, "{}: {}", endpoint, ErrorText(errno));
  }
  LocalConnection connection{PacketSocket(std::move(fd))};
  // Nobody else is told the token.
  if (const int64_t user = connection.PeerUser(); user != static_cast<int64_t>(::geteuid())) {
    throw Error(ExitCode::kPeerFailed, "{}: user {} listens there, expected user {}", endpoint,
                user, ::geteuid());
  }
  return std::make_unique<LocalClientLink>(std::move(connection));
}

}  // namespace muster
