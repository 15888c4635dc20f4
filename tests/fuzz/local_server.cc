// The server's end of the local link, with this target as its workers. They send arbitrary packets,
// some with descriptors, write anything into the message memory, and may end at any time. Received
// messages come from a current peer, never after its loss, and gradients are in readable memory.
#include <fcntl.h>
#include <unistd.h>

#include <map>
#include <set>

#include "common/transport/local/local_link.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/ring_place.h"
#include "tests/job/raw_local_link.h"

namespace muster::fuzz {
namespace fuzz_local_server {

constexpr size_t kMostWorkers = 3;
constexpr int kAtATime = 20;

struct Worker {
  explicit Worker(UniqueFd fd) : connection(PacketSocket(std::move(fd))) {}
  LocalConnection connection;
  SharedMemory to_server;  // writable anywhere by a hostile worker
};

class Play {
 public:
  explicit Play(Input input) : input_(input) { link_->ShareWeights(weights_); }

  void Run() {
    while (!input_.empty()) Do(input_.Byte());
    workers_.clear();
    // Their messages come first: a ring may be full of empty messages.
    constexpr size_t kMost = kMostWorkers * sizeof(RingMemory) / MessageRing::kLengthBytes;
    for (size_t i = 0; i < 200 + kMost / kAtATime && !peers_.empty(); ++i) ReceiveAll();
    Require(peers_.empty(), "a disconnected worker is not lost");
  }

 private:
  void Connect() { workers_.push_back(std::make_unique<Worker>(testing::ConnectRaw(endpoint_))); }

  void Do(uint8_t byte) {
    if (workers_.size() < kMostWorkers && byte % 16 == 0) return Connect();
    if (workers_.empty()) return;
    const size_t i = byte / 16 % workers_.size();
    Worker& worker = *workers_[i];
    switch (byte % 16) {
      case 1:
      case 2:
      case 3:
        return Say(worker);
      case 4:
        return SendRaw(worker);
      case 5:
      case 6:
        return Hear(worker);
      case 7:
      case 8:
        return WriteAnything(worker);
      case 9:
        workers_.erase(workers_.begin() + static_cast<ptrdiff_t>(i));
        return;
      case 10:
        (void)link_->PrepareToSleep();
        return;
      case 11:
        return Tell();
      case 12:
        link_->Deliver();
        return;
      default:
        return ReceiveAll();
    }
  }

  void Say(Worker& worker) {
    wire::WorkerMessage message;
    message.mutable_gradient_part()->set_chunk(input_.Byte() % 3);
    message.mutable_gradient_part()->set_buffer(input_.Byte() % 3);
    (void)message.MergeFromString(input_.Piece());
    worker.connection.Append(message.SerializeAsString());
    (void)worker.connection.Flush();
  }

  // Sends a packet outside of the protocol, with or without descriptors.
  void SendRaw(Worker& worker) {
    const size_t count = input_.Byte() % 5;
    std::vector<UniqueFd> fds;
    std::vector<int> raw;
    for (size_t i = 0; i < count; ++i) {
      raw.push_back(fds.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC)).get());
    }
    PacketSocket socket(UniqueFd(::fcntl(worker.connection.fd(), F_DUPFD_CLOEXEC, 0)));
    socket.Append(input_.Piece(), raw);
    (void)socket.Flush();
  }

  void Hear(Worker& worker) {
    std::string message;
    std::vector<UniqueFd> fds;
    const auto status = worker.connection.Receive(true, message, fds);
    Require(status != LocalConnection::Status::kMalformed, "the server wrote malformed data");
    if (fds.size() != 4) return;
    worker.to_server = testing::MapAgain(fds[2], SharedMemory::Access::kReadWrite);
    testing::AttachRaw(worker.connection, fds);
  }

  void WriteAnything(Worker& worker) {
    const size_t at = PlaceInRing(input_.Number<uint16_t>());
    const std::string bytes = input_.Piece();
    if (worker.to_server.bytes() == 0) return;
    auto* const memory = reinterpret_cast<char*>(worker.to_server.writable_floats().data());
    std::memcpy(memory + at, bytes.data(), std::min(bytes.size(), sizeof(RingMemory) - at));
  }

  // Replies to a peer's first and later messages like the server's loop.
  void Tell() {
    if (peers_.empty()) return;
    const PeerId peer = *std::next(peers_.begin(), input_.Byte() % static_cast<int>(peers_.size()));
    wire::ServerMessage message = testing::RawWelcome();
    if (welcomed_.insert(peer).second || input_.Byte() == 0) {
      link_->ShareGradients(peer, GradientLayoutOf(message.welcome()));
    } else {
      message.mutable_stop()->set_reason(std::string(input_.Byte() * 100, 'x'));
    }
    (void)link_->Send(peer, message, {});
  }

  void ReceiveAll() {
    for (int i = 0; i < kAtATime; ++i) {
      (void)link_->PrepareToSleep();  // looks at the sockets immediately
      const auto event = link_->Receive();
      if (!event) continue;
      Require(!lost_.contains(event->peer), "a message from a peer after its loss");
      if (event->kind == FromWorker::Kind::kLost) {
        lost_.insert(event->peer);
        peers_.erase(event->peer);
        Require(link_->Send(event->peer, testing::RawWelcome(), {}) == SendResult::kGone,
                "a message to a lost peer");
        continue;
      }
      peers_.insert(event->peer);
      float sum = 0;
      for (const float value : event->payload.floats()) sum += value;
      volatile float read = sum;
      (void)read;
    }
  }

  Input input_;
  const std::string endpoint_ = testing::UniqueLocalEndpoint();
  SharedMemory weights_ = testing::RawWeights();
  const std::unique_ptr<ServerLink> link_ =
      ListenLocal(endpoint_, {.max_waiting_bytes = 4 << 10, .max_local_peers = 8});
  std::vector<std::unique_ptr<Worker>> workers_;
  std::set<PeerId> peers_, welcomed_, lost_;
};

}  // namespace fuzz_local_server
}  // namespace muster::fuzz

FUZZ_TARGET(local_server) {
  muster::fuzz::SilenceLogs();
  muster::fuzz::fuzz_local_server::Play(muster::fuzz::Input(data, size)).Run();
  return 0;
}
