// The interface through which a worker and the server exchange messages and tensors. All transports
// carry the same messages and chunks and give the same bits.
//
// A link transfers whole messages (proto/wire.proto). If the transport sends tensors (ZeroMQ),
// their bytes are the message's payload. If memory is shared (local), the bytes stay in place.
// Callers decide how urgent a tensor is and where its bytes are. The exception is the server's end
// of the local link, which itself locates the partial gradient that a message describes.
//
// Threads: the server's end belongs to the server's loop. For the client's end, see
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

// Orders the waiting tensors for one peer. The lesser one is sent first.
struct Urgency {
  int64_t step = 0;      // the gradient's step or the weights' version; older ones first
  bool average = false;  // averages follow all weights of their version
  uint32_t chunk = 0;    // lower layers first, in the order of the next forward pass

  // clang-tidy 14 mistakes the 0 of a defaulted comparison for a pointer.
  friend auto operator<=>(const Urgency&,
                          const Urgency&) = default;  // NOLINT(modernize-use-nullptr)
};

// Identifies a connected peer in the server. An ID is never reused for another connection.
using PeerId = uint64_t;

// A message's tensor bytes: floats or 16-bit floats (common/link/wire_type.h), 4-byte aligned.
// `owner` keeps the bytes alive.
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
    kRefused,    // a connection failed its handshake, so there is no peer
  };
  Kind kind;
  PeerId peer = 0;
  wire::WorkerMessage message;
  Payload payload;
  std::string refused;      // kRefused: the address of the peer
  std::string why_refused;  // kRefused: the reason
};

// The result of sending a message to a worker.
enum class SendResult {
  kQueued,
  kGone,  // the peer is gone; Receive reports that after the peer's last messages
  // Too many bytes are waiting, because the peer does not read its messages. The message is queued
  // anyway unless twice the limit is already waiting, so that the server can still send a last
  // message to a peer that it gives up.
  kFull,
};

// Whether not even a last message is queued any more. Bounds the memory used for peers that never
// read.
inline bool IsOverfull(size_t waiting_bytes, size_t most) { return waiting_bytes / 2 > most; }

// A message's tensor bytes, and their urgency relative to other tensors for the same peer. A
// message without bytes is a control message and overtakes all waiting tensors, unless it is a
// WeightsChunk for a worker behind a relay. When a tensor that is two steps newer is sent, a
// waiting tensor is dropped, because it is no longer needed and its bytes may change.
struct OutgoingTensor {
  std::span<const std::byte> bytes;
  Urgency urgency;
};

class ServerLink {
 public:
  virtual ~ServerLink() = default;

  // Sets the memory of the weights, for transports that can share it with workers. Call before the
  // first Welcome. The memory must outlive the link.
  virtual void ShareWeights(SharedMemory& weight_buffers) { (void)weight_buffers; }
  // Call before sending the peer's Welcome, which must be the next message to it. A transport that
  // shares memory hands over the weights and a gradient buffer with `layout`, and returns gradients
  // in this buffer as payloads. If the memory cannot be allocated, Welcome is sent without it.
  virtual void ShareGradients(PeerId peer, const GradientLayout& layout) {
    (void)peer;
    (void)layout;
  }

  // Whether this peer reads the weights in place. Such a peer can see all of them as soon as they
  // are written.
  virtual bool SharesMemory(PeerId peer) const {
    (void)peer;
    return false;
  }
  // Equal for two peers if their messages come over one connection: both are behind one relay.
  virtual PeerId ConnectionOf(PeerId peer) const { return peer; }

  // The address that workers connect to.
  virtual std::string endpoint() const = 0;

  // The descriptor to pass to poll(2) after PrepareToSleep.
  virtual int fd() const = 0;
  // Whether there is input that fd() does not signal.
  virtual bool Pending() = 0;
  // Whether Pending() notices activity of workers quickly and without a system call, so that a
  // short wait may spin on it instead of sleeping.
  virtual bool may_spin() const { return false; }
  // From now until the next Receive, all input makes fd() readable. Returns false if there is input
  // already.
  virtual bool PrepareToSleep() { return !Pending(); }

  // Returns the next message or loss, if there is one. Never blocks. With may_spin(), events that
  // need a system call (a connection, a loss) may be a millisecond late, but not after
  // PrepareToSleep.
  virtual std::optional<FromWorker> Receive() = 0;

  // Queues a message. Never blocks. The tensor's bytes must stay unchanged until the peer has used
  // them, a tensor two steps newer is sent, or the link is destroyed.
  virtual SendResult Send(PeerId peer, const wire::ServerMessage& message,
                          const OutgoingTensor& tensor) = 0;
  // Sends the queued messages. Batching them lets simultaneous notices go out together.
  virtual void Deliver() {}
};

// The memory that the server shares with a worker: the weight buffers, each as large as the model,
// which the worker reads (PROTOCOL.md), and the worker's gradient buffers (GradientLayout), which
// it writes.
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

// A callback for when a tensor's bytes are no longer needed. Called from any thread.
struct Release {
  void (*call)(void* hint) = nullptr;
  void* hint = nullptr;
};

// Thrown if the memory that comes with Welcome is missing or unusable. The server keeps the worker
// as a member as long as the link is open.
class HandOverFailed : public Error {
 public:
  explicit HandOverFailed(const std::string& why) : Error(ExitCode::kFailure, why) {}
};

class ClientLink {
 public:
  virtual ~ClientLink() = default;

  // The transport's name, for logs.
  virtual const char* transport() const = 0;

  // Whether tensors are in the memory that comes with Welcome (FromServer::shared), not in
  // payloads.
  virtual bool shares_memory() const = 0;

  // False: one thread, which owns the socket, must make all calls. True: any thread may call Send
  // and Deliver at any time, and one thread at a time may call Receive, Pending and PrepareToSleep.
  virtual bool any_thread() const = 0;

  // See ServerLink.
  virtual int fd() const = 0;
  virtual bool Pending() = 0;
  virtual bool PrepareToSleep() { return !Pending(); }
  // Throws HandOverFailed.
  virtual std::optional<FromServer> Receive() = 0;
  // Queues a message. Never blocks. `tensor` must stay unchanged until it is released, at the
  // latest when the link is destroyed. Returns false, without releasing `tensor`, if the server
  // does not read its messages.
  virtual bool Send(const wire::WorkerMessage& message, std::span<const std::byte> tensor,
                    Release release = {}) = 0;
  // Sends the queued messages. Returns false if the server is gone.
  virtual bool Deliver() { return true; }
  // Waits up to `limit` until all sent messages have left this process.
  virtual void Flush(std::chrono::milliseconds limit) = 0;
};

struct LinkOptions {
  size_t max_message_bytes = 0;  // sent by a worker; a larger frame closes the connection
  // The same for messages of the server, whose chunk size may differ from this config's.
  size_t max_server_message_bytes = 0;
  // The maximum number of messages per peer that libzmq queues for sending. Further messages wait
  // in this process.
  int max_queued_messages = 0;
  // Server: the maximum number of bytes of messages without tensors that may wait in this process
  // for one peer. A peer that exceeds the limit is considered not to read its messages.
  size_t max_waiting_bytes = std::numeric_limits<size_t>::max();
  // The maximum number of messages per peer that are received but not yet processed. Further
  // messages wait at the peer, which limits the memory that a peer can occupy here.
  int max_received_messages = 0;
  // Server, TCP: the address that endpoint() returns, if it is not the listening address. The port
  // * stands for the actual port.
  std::string advertised;
  double silence_s = 20;  // the longest silence of a live connection
  std::string token;      // ZeroMQ: peers without it are refused
  bool encrypt = false;   // TCP: see IsEncrypted
  // With AUTO: whether processes on one host share memory. False with 16-bit tensors: shared
  // tensors would not be rounded, so the bits would depend on where a worker runs.
  bool share_memory = true;
  // Local: whether GPU drivers lock the weights' pages, which requires that workers can map them
  // for writing. If false, only the server can write them.
  bool locks_pages = false;
  int io_threads = 1;  // server, ZeroMQ
  // Server, local: the maximum number of connections, so that processes of the same user cannot use
  // up all descriptors. Further connections are closed at once.
  size_t max_local_peers = 4096;
};

}  // namespace muster
