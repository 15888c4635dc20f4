#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <mutex>
#include <utility>

#include "common/error.h"
#include "common/link/local_address.h"
#include "common/link/local_link.h"
#include "common/link/packet_socket.h"
#include "common/link/slot_layout.h"
#include "common/unique_fd.h"

namespace muster {
namespace {

class LocalClientLink : public ClientLink {
 public:
  explicit LocalClientLink(PacketSocket socket) : socket_(std::move(socket)) {}

  const char* transport() const override { return "shared memory"; }
  bool any_thread() const override { return true; }
  int fd() const override { return socket_.fd(); }
  bool Pending() override { return !received_.empty(); }
  std::optional<FromServer> Receive() override;
  bool Send(const wire::WorkerMessage& message, std::span<const std::byte> tensor) override;
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

  // Send and Receive are called by different threads; the socket's two directions have nothing in
  // common but what PacketSocket keeps: unsent packets (sending) and a buffer (receiving).
  std::mutex sending_;
  PacketSocket socket_;
  std::deque<FromServer> received_;
  bool lost_ = false;
  wire::Welcome welcome_;
  std::vector<UniqueFd> handed_over_;  // planes, slot
  SlotLayout layout_;
  SharedMemory planes_, slots_;
};

FromServer LocalClientLink::Parse(const std::string& bytes) {
  FromServer result{FromServer::Kind::kMalformed, {}, {}};
  if (!result.message.ParseFromString(bytes)) return result;
  result.kind = FromServer::Kind::kMessage;
  if (result.message.has_welcome()) welcome_ = result.message.welcome();
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

std::optional<FromServer> LocalClientLink::Receive() {
  if (received_.empty() && !lost_) {
    std::vector<std::string> messages;
    switch (socket_.Receive(messages, handed_over_)) {
      case PacketSocket::Status::kNothing:
        return std::nullopt;
      case PacketSocket::Status::kClosed:
        lost_ = true;
        return FromServer{FromServer::Kind::kLost, {}, {}};
      case PacketSocket::Status::kMalformed:
        return FromServer{FromServer::Kind::kMalformed, {}, {}};
      case PacketSocket::Status::kPacket:
        break;
    }
    // The Welcome comes in a packet of its own: what follows is read when its memory is mapped.
    for (const std::string& bytes : messages) received_.push_back(Parse(bytes));
  }
  if (received_.empty()) return std::nullopt;
  FromServer result = std::move(received_.front());
  received_.pop_front();
  return result;
}

bool LocalClientLink::Send(const wire::WorkerMessage& message, std::span<const std::byte>) {
  const std::string bytes = message.SerializeAsString();
  const std::lock_guard lock(sending_);
  socket_.Append(bytes);
  return true;
}

bool LocalClientLink::Deliver() {
  const std::lock_guard lock(sending_);
  return socket_.Flush();
}

void LocalClientLink::Flush(std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  const std::lock_guard lock(sending_);
  while (socket_.Flush() && socket_.HasUnsent() && std::chrono::steady_clock::now() < deadline) {
    pollfd room{socket_.fd(), POLLOUT, 0};
    (void)::poll(&room, 1, 20);
  }
}

void LocalClientLink::AllocateTensors(size_t arena_floats, size_t slots, WireType type) {
  if (type != wire::FP32) {
    throw Error(ExitCode::kPeerFailed, "the server wants to round what lies in shared memory");
  }
  layout_ = SlotLayout(welcome_);
  if (handed_over_.size() != 2) {
    throw Error(ExitCode::kPeerFailed,
                "the server handed over {} memories with Welcome, expected 2: weights and slot",
                handed_over_.size());
  }
  planes_ = SharedMemory::Map(std::move(handed_over_[0]), SharedMemory::Access::kRead);
  slots_ = SharedMemory::Map(std::move(handed_over_[1]), SharedMemory::Access::kReadWrite);
  handed_over_.clear();
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
    throw Error(ExitCode::kPeerFailed, "{}: {}", endpoint, std::strerror(errno));
  }
  PacketSocket socket(std::move(fd));
  // Nobody else is told the token.
  if (const int64_t user = socket.PeerUser(); user != static_cast<int64_t>(::geteuid())) {
    throw Error(ExitCode::kPeerFailed, "{}: user {} listens there, expected user {}", endpoint,
                user, ::geteuid());
  }
  return std::make_unique<LocalClientLink>(std::move(socket));
}

}  // namespace muster
