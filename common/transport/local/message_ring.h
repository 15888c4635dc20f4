// Passes messages between two processes through shared memory, without system calls. A MessageRing
// is one end of a pair of rings. Each ring has one writer and one reader.
//
// Each process writes its own RingMemory and can only read the other's. A RingMemory contains the
// bytes sent, their count, the count of bytes taken from the other ring, and whether this side
// sleeps. A ring carries a stream of messages, each after its length (4 bytes, little-endian). A
// message that is larger than the ring passes through it in pieces.
//
// Only a sleeping process is woken. Before it sleeps, a reader sets its doorbell and then checks
// the ring again. A writer publishes and then checks the doorbell. All four accesses are
// sequentially consistent, so at least one side sees the other's change and no message goes
// unnoticed. Waiting for room in a full ring works in the same way.
//
// Data from the other side is untrusted: impossible counts and lengths above the limit break the
// connection, and a message is copied out before it is parsed.
//
// Threads: one sender (Write, Publish, WantRoom) and one receiver (Take, Pending, PrepareToSleep,
// WakeUp) at a time; they may be different threads. MustRing: any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace muster {

// Memory that one process writes and the other reads. Counts are in bytes since the connection
// began. The initial state is all zeros, as in fresh memory.
struct RingMemory {
  static constexpr size_t kBytes = 64 << 10;

  alignas(64) std::atomic<uint64_t> written;  // bytes written to the ring
  std::atomic<uint32_t> wants_room;           // 1: ring the doorbell when there is room
  alignas(64) std::atomic<uint64_t> taken;    // bytes taken from the other side's ring
  alignas(64)
      std::atomic<uint32_t> doorbell;  // odd while this side sleeps; never the same odd value twice
  alignas(64) char ring[kBytes];       // byte n of the stream is at n mod kBytes
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);
static_assert(std::atomic<uint32_t>::is_always_lock_free);
// See proto/PROTOCOL.md.
static_assert(offsetof(RingMemory, wants_room) == 8 && offsetof(RingMemory, taken) == 64 &&
              offsetof(RingMemory, doorbell) == 128 && offsetof(RingMemory, ring) == 192);

class MessageRing {
 public:
  // A longer message breaks the connection. This is also the limit for a header over ZeroMQ.
  static constexpr size_t kMaxMessageBytes = 4 << 20;
  // The size of the length before each message.
  static constexpr size_t kLengthBytes = 4;

  // `mine` and `theirs` must outlive this object.
  MessageRing(RingMemory& mine, const RingMemory& theirs) : mine_(mine), theirs_(theirs) {}

  // Writes as much of a message as fits, starting at byte `begin` of the length and the message (4
  // + message.size() bytes). Returns the position at which to continue, which is 4 + message.size()
  // after the last byte. The other side sees the bytes after Publish.
  size_t Write(std::string_view message, size_t begin = 0);
  void Publish();
  // Requests a doorbell when there is room again, or cancels the request. Returns true if there is
  // room already.
  bool WantRoom(bool wanted);

  enum class Status { kMessage, kNothing, kBroken };
  // Takes the next complete message. Returns kBroken, now and in all later calls, if the other side
  // wrote invalid data.
  Status Take(std::string& message);
  // Call when the connection has ended. Ignores everything that is written afterwards.
  void EndInput() { input_end_ = theirs_.written.load(std::memory_order_seq_cst); }
  // Whether there is anything to take. Costs only one atomic load.
  bool Pending() const {
    return theirs_.written.load(std::memory_order_seq_cst) != taken_ || broken_;
  }

  // Sets the doorbell. Check Pending() and WantRoom() once more before sleeping.
  void PrepareToSleep();
  void WakeUp();

  enum class Reason { kPublished, kTaken };
  // Whether the other side sleeps and waits for this event. True at most once per sleep.
  bool MustRing(Reason reason);

 private:
  size_t Room(size_t enough);
  void CopyIn(uint64_t at, const char* from, size_t bytes);
  void CopyOut(uint64_t at, char* to, size_t bytes) const;

  RingMemory& mine_;
  const RingMemory& theirs_;
  // This side's own counts. They are not read back from shared memory.
  uint64_t written_ = 0;
  uint64_t taken_ = 0;
  uint64_t input_end_ = ~uint64_t{0};
  uint64_t seen_taken_ = 0;          // bytes taken by the other side when last checked
  std::atomic<bool> broken_{false};  // set by the sender and the receiver
  // The received part of the message that is being taken.
  std::string partial_;
  size_t length_ = 0;
  bool has_length_ = false;
  std::atomic<uint32_t> rung_{0};  // the other side's doorbell value when last rung
};

}  // namespace muster
