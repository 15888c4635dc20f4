// One end of a connection of the local link. Messages travel as socket packets until both sides
// have the memory that comes with Welcome, and then through rings in that memory; the socket then
// carries doorbells and reports the end of the connection. Nothing blocks; what does not fit waits
// here.
//
// Threads: one sender (Append, Flush, unsent) and one receiver (everything else) at a time; they
// may be different threads. No other call may run during Attach.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/shared_memory.h"
#include "common/transport/local/message_ring.h"
#include "common/transport/local/packet_socket.h"

namespace muster {

class LocalConnection {
 public:
  explicit LocalConnection(PacketSocket socket) : socket_(std::move(socket)) {}

  int fd() const { return socket_.fd(); }
  int64_t PeerUser() const { return socket_.PeerUser(); }

  // From now on, appended messages go through memory: this side writes `mine`, the other side
  // writes `theirs`. Throws Error(kPeerFailed) if one is too small.
  void Attach(SharedMemory mine, SharedMemory theirs);
  bool attached() const { return memory_ != nullptr; }

  // Queues a message for the next Flush. Descriptors are only allowed before Attach.
  void Append(std::string_view message, std::span<const int> fds = {});
  // Sends as much as fits, and wakes the other side if it sleeps. False: the socket is closed.
  bool Flush();
  // Bytes that wait for room.
  size_t unsent() const { return socket_.unsent() + (memory_ ? memory_->unsent_bytes : 0); }
  // Whether they wait for room in the socket's buffer.
  bool WaitsForSocket() const { return socket_.unsent() > 0; }

  // Whether a message can be taken from memory.
  bool Pending() const { return memory_ && memory_->ring.Pending(); }
  // kMalformed: an invalid packet, or invalid memory if broken(). kClosed: reported after
  // everything that the other side sent.
  enum class Status { kMessage, kNothing, kClosed, kMalformed };
  // The next message, from memory. The socket carries doorbells, descriptors and the end of file.
  // Reading it costs a system call, so it is only read (first) if `look_at_socket`.
  Status Receive(bool look_at_socket, std::string& message, std::vector<UniqueFd>& fds);
  // The other side wrote invalid data to its memory; nothing more can be received.
  bool broken() const { return broken_; }

  // Makes the other side ring from now on. Call Flush if something is unsent, and Pending once
  // more, before polling fd().
  void PrepareToSleep();
  void WakeUp();

 private:
  struct Memory {
    Memory(SharedMemory mine_memory, SharedMemory theirs_memory);
    SharedMemory mine, theirs;
    MessageRing ring;
    bool unpublished = false;
    std::deque<std::string> unsent;
    size_t unsent_bytes = 0;  // of whole messages
    size_t begin = 0;         // bytes of the first message, with its length, that are in the ring
  };

  void FlushMemory();
  Status TakeFromMemory(std::string& message);

  PacketSocket socket_;
  std::unique_ptr<Memory> memory_;
  bool closed_ = false, broken_ = false;
};

}  // namespace muster
