// One end of a connection of the local link: packets of a socket until both sides have the memory
// of Welcome, from then on messages through rings in that memory, with the socket for doorbells and
// for its end of file. Nothing blocks; what does not fit waits here.
//
// Threads: those who send (Append, Flush, unsent) one at a time, those who receive (the rest) one
// at a time; the two may be different threads. Attach: nobody else at the same time.
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

  // What is appended from now on goes through memory: `mine` is written here, `theirs` at the other
  // end. Throws Error(kPeerFailed) if one is too small.
  void Attach(SharedMemory mine, SharedMemory theirs);
  bool attached() const { return memory_ != nullptr; }

  // Adds a message to what the next Flush sends. Descriptors: before Attach only.
  void Append(std::string_view message, std::span<const int> fds = {});
  // Hands over as much as there is room for, and wakes the other side if it sleeps. False: the
  // socket is gone.
  bool Flush();
  // Bytes that wait for room.
  size_t unsent() const { return socket_.unsent() + (memory_ ? memory_->unsent_bytes : 0); }
  // Whether the socket's buffer is what they wait for.
  bool WaitsForSocket() const { return socket_.unsent() > 0; }

  // Whether there is something to take from memory.
  bool Pending() const { return memory_ && memory_->ring.Pending(); }
  // kMalformed: a packet, or (with broken()) memory, that cannot be. kClosed: after all that the
  // other side has sent.
  enum class Status { kMessage, kNothing, kClosed, kMalformed };
  // The next message, from memory. The socket, where doorbells, descriptors and the end of file
  // are, costs a system call and is looked at (first) only on demand.
  Status Receive(bool look_at_socket, std::string& message, std::vector<UniqueFd>& fds);
  // The other side wrote to its memory what no peer of this protocol writes: nothing more will
  // come.
  bool broken() const { return broken_; }

  // The other side is to ring from now on. Then Flush, if there is something unsent, and
  // Pending must be called once more before fd() is polled.
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
    size_t begin = 0;         // bytes of the first one that are in the ring
  };

  void FlushMemory();
  Status TakeFromMemory(std::string& message);

  PacketSocket socket_;
  std::unique_ptr<Memory> memory_;
  bool closed_ = false, broken_ = false;
};

}  // namespace muster
