// One end of a connection of the local link. Messages are sent as socket packets until both sides
// have the memory that comes with Welcome, and then through rings in that memory. From then on, the
// socket carries doorbells and reports the end of the connection. Nothing blocks; messages that do
// not fit wait here.
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

  // Sends all further messages through memory: this side writes `mine`, the other side writes
  // `theirs`. Throws Error(kPeerFailed) if one of them is too small.
  void Attach(SharedMemory mine, SharedMemory theirs);
  bool attached() const { return memory_ != nullptr; }

  // Queues a message for the next Flush. Descriptors are allowed only before Attach.
  void Append(std::string_view message, std::span<const int> fds = {});
  // Sends as much as fits, and wakes the other side if it sleeps. Returns false if the socket is
  // closed.
  bool Flush();
  // Number of bytes that wait for room in the ring or in the socket's buffer.
  size_t unsent() const { return socket_.unsent() + (memory_ ? memory_->unsent_bytes : 0); }
  // Whether unsent bytes wait for room in the socket's buffer.
  bool WaitsForSocket() const { return socket_.unsent() > 0; }

  // Whether a message can be taken from memory.
  bool Pending() const { return memory_ && memory_->ring.Pending(); }
  // kMalformed: the packet is invalid or, if broken(), the memory is. kClosed is reported after
  // everything that the other side sent.
  enum class Status { kMessage, kNothing, kClosed, kMalformed };
  // Receives the next message. Reads the socket first if `look_at_socket` is set, for doorbells,
  // descriptors and the end of file; this costs a system call. Then reads from memory.
  Status Receive(bool look_at_socket, std::string& message, std::vector<UniqueFd>& fds);
  // Whether the other side wrote invalid data to its memory. If so, nothing more can be received.
  bool broken() const { return broken_; }

  // Makes the other side ring from now on. Before polling fd(), call Flush if anything is unsent,
  // and check Pending once more.
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
