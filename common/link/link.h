// How a worker and the server exchange messages and tensors. Two transports, one contract: the
// same messages, the same chunks, the same bits.
//
// A link moves whole messages (proto/wire.proto). A message about a tensor carries the tensor's
// bytes as payload where the transport has to move them (ZeroMQ); where memory is shared (local),
// the bytes stay where they are. What is urgent, and what memory goes with a message, its callers
// say; the server's end of the local link alone looks where a partial gradient lies.
//
// Threads: the server's end belongs to the server's loop. The client's end: see
// ClientLink::any_thread.
#pragma once

#include <chrono>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/base/error.h"
#include "common/base/shared_memory.h"
#include "common/plan/gradient_layout.h"
#include "proto/wire.pb.h"

namespace muster {

// Which of the tensors that wait for the same peer leaves first: the lesser one.
struct Urgency {
  int64_t step = 0;      // the gradient's, or the weights' version: older ones first
  bool average = false;  // the average comes after all weights of its version
  uint32_t chunk = 0;    // lower layers first: the next forward pass waits for them

  // clang-tidy 14 takes the 0 of a defaulted comparison for a pointer.
  friend auto operator<=>(const Urgency&,
                          const Urgency&) = default;  // NOLINT(modernize-use-nullptr)
};

// A connected peer, as the server sees it. Never used again for another connection.
using PeerId = uint64_t;

// Tensor bytes that came with a message: floats, or their halves (common/link/wire_type.h). `owner`
// keeps them alive; they are 4-byte aligned.
struct Payload {
  const void* data = nullptr;
  size_t bytes = 0;  // as received
  std::shared_ptr<const void> owner;

  std::span<const float> floats() const {
    return {static_cast<const float*>(data), bytes / sizeof(float)};
  }
  std::span<const uint16_t> halves() const {
    return {static_cast<const uint16_t*>(data), bytes / sizeof(uint16_t)};
  }
};

struct FromWorker {
  enum class Kind {
    kMessage,
    kMalformed,  // not a WorkerMessage; `message` is empty
    kLost,       // the connection ended
    kRefused,    // somebody who did not get through the handshake; no peer
  };
  Kind kind;
  PeerId peer = 0;
  wire::WorkerMessage message;
  Payload payload;
  std::string refused;      // kRefused: whose connection
  std::string why_refused;  // …, and why
};

// What became of a message to a worker.
enum class SendResult {
  kQueued,
  kGone,  // the peer has gone: Receive tells so, after the peer's last messages
  // More waits than may, since the peer does not drain its messages. This one is queued all the
  // same, as the last words to a peer that is given up, but not if twice as much waits already.
  kFull,
};

// Whether not even last words are queued any more. Strangers that never read end here.
inline bool IsOverfull(size_t waiting_bytes, size_t most) { return waiting_bytes / 2 > most; }

// Tensor bytes that go with a message, and when they leave among others for the same peer.
// Without bytes it is a control message, which overtakes all tensors that wait. A tensor that still
// waits when one two steps newer is sent is dropped: nobody needs it, and its bytes may change.
struct OutgoingTensor {
  std::span<const std::byte> bytes;
  Urgency urgency;
};

class ServerLink {
 public:
  virtual ~ServerLink() = default;

  // The memory in which the weights will lie, for a transport that can let workers read it there.
  // Before the first Welcome; it outlives the link.
  virtual void ShareWeights(SharedMemory& weight_buffers) { (void)weight_buffers; }
  // The peer's Welcome is what is sent to it next: with it goes the memory in which the weights lie
  // and its gradients will, laid out like this, for a transport that can share memory. Gradients
  // come from there as payloads. If there is no memory to be had, Welcome goes without.
  virtual void ShareGradients(PeerId peer, const GradientLayout& layout) {
    (void)peer;
    (void)layout;
  }

  // Whether this peer reads the weights where they lie, so that all of them are there at once.
  virtual bool SharesMemory(PeerId peer) const {
    (void)peer;
    return false;
  }

  // The address that workers connect to.
  virtual std::string endpoint() const = 0;

  // poll(2) for input on this, after PrepareToSleep.
  virtual int fd() const = 0;
  // Whether there is input that fd() does not tell of.
  virtual bool Pending() = 0;
  // Whether Pending() will soon tell, without a system call, of what workers do: a short wait may
  // look at it instead of sleeping.
  virtual bool may_spin() const { return false; }
  // From now until the next Receive all input makes fd() readable. False: there is some already.
  virtual bool PrepareToSleep() { return !Pending(); }

  // The next message or loss, if there is one. Never blocks. With may_spin(), what only a system
  // call can tell (a connection, a loss) may wait for a millisecond, but not for more, or until
  // PrepareToSleep.
  virtual std::optional<FromWorker> Receive() = 0;

  // Queues a message. Never blocks. The tensor's bytes must stay unchanged until the peer has used
  // them, one two steps newer is sent, or the link is gone.
  virtual SendResult Send(PeerId peer, const wire::ServerMessage& message,
                          const OutgoingTensor& tensor) = 0;
  // Hands over what was queued: notices that are sent at one time go out together.
  virtual void Deliver() {}
};

// What a server shares with a worker: the weight buffers (wire.proto), one arena of floats each, to
// read, and the gradient buffers of its gradients (GradientLayout), to write.
struct SharedTensors {
  SharedMemory weight_buffers, gradient_buffers;
};

struct FromServer {
  enum class Kind { kMessage, kMalformed, kLost };
  Kind kind;
  wire::ServerMessage message;
  Payload payload;
  std::unique_ptr<SharedTensors> shared = nullptr;  // with Welcome, if the link shares memory
};

// Tells, from any thread, that a tensor's bytes have been used.
struct Release {
  void (*call)(void* hint) = nullptr;
  void* hint = nullptr;
};

// The memory that comes with Welcome is not there, or cannot be used by this process. The server
// still counts on this worker, for as long as the link is open.
class HandOverFailed : public Error {
 public:
  explicit HandOverFailed(const std::string& why) : Error(ExitCode::kFailure, why) {}
};

class ClientLink {
 public:
  virtual ~ClientLink() = default;

  // How tensors travel, for people.
  virtual const char* transport() const = 0;

  // Whether tensors lie in memory that comes with Welcome (FromServer::shared); else they are
  // payload.
  virtual bool shares_memory() const = 0;

  // False: one thread, which owns the socket, calls everything. True: Send and Deliver may be
  // called by any thread at any time, and Receive, Pending and PrepareToSleep by any thread, by one
  // at a time.
  virtual bool any_thread() const = 0;

  // As the server's.
  virtual int fd() const = 0;
  virtual bool Pending() = 0;
  virtual bool PrepareToSleep() { return !Pending(); }
  // Throws HandOverFailed.
  virtual std::optional<FromServer> Receive() = 0;
  // Queues a message. Never blocks. `tensor` must stay unchanged until it is released, at the
  // latest when the link is gone. False: the server does not drain its messages; not released.
  virtual bool Send(const wire::WorkerMessage& message, std::span<const std::byte> tensor,
                    Release release = {}) = 0;
  // Hands over what was queued. False: the server is gone.
  virtual bool Deliver() { return true; }
  // Waits until what was sent has left this process, for as long as `limit`.
  virtual void Flush(std::chrono::milliseconds limit) = 0;
};

struct LinkOptions {
  size_t max_message_bytes = 0;  // of a worker's: larger frames cut the connection
  // The same of the server's, whose chunks may be cut otherwise than this config says.
  size_t max_server_message_bytes = 0;
  // That libzmq holds for a peer, and has not sent yet. Others wait in this process.
  int max_queued_messages = 0;
  // Server: messages without tensors that wait in this process for a peer. A peer for which more
  // wait does not drain its messages.
  size_t max_waiting_bytes = std::numeric_limits<size_t>::max();
  // Messages that were received and not yet taken, per peer: more wait at the peer, so that what a
  // peer can make this process hold has a bound.
  int max_received_messages = 0;
  // Server, tcp: what endpoint() says, where that is not the address it listens on. With * as port,
  // the one that it got.
  std::string advertised;
  double silence_s = 20;  // for how long a connection may be without a sign of life
  std::string token;      // ZeroMQ: who does not know it is not admitted
  bool encrypt = false;   // TCP: see IsEncrypted
  // With AUTO: processes of one host share memory. Not where tensors travel in 16 bits: what is
  // shared would not be rounded, and the bits would depend on where a worker runs.
  bool share_memory = true;
  // Local: drivers of GPUs lock the weights' pages, which they can only if a worker may map them
  // for writing. Else nobody but the server can.
  bool locks_pages = false;
  int io_threads = 1;  // server, ZeroMQ
  // Server, local: connections at a time, so that strangers of the same user cannot use up all
  // descriptors. More are closed at once.
  size_t max_local_peers = 4096;
};

}  // namespace muster
