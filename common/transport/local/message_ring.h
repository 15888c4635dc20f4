// Messages between two processes through memory that both map, without a system call: one end of a
// pair of rings, each with one writer and one reader.
//
// Each process writes one RingMemory and can only read the other's: the bytes that it sends, how
// many those were, how many it took of the other's, and whether it sleeps. A ring carries a stream
// of (length: 4 bytes, little-endian; message); a message may be larger than the ring, and passes
// through it piece by piece.
//
// Nobody is woken who is awake: a reader that is about to sleep sets its doorbell and then looks at
// the ring once more, and a writer that has published looks at the doorbell. All four accesses are
// sequentially consistent, so that one of the two sees the other and no message stays unnoticed.
// Room in a full ring is waited for in the same way.
//
// Nothing that the other side writes is trusted: counts that cannot be, and lengths above the
// limit, break the connection, and a message is copied out before anybody looks into it.
//
// Threads: those who send (Write, Publish, WantRoom) are one at a time, and so are those who
// receive (Take, Pending, PrepareToSleep, WakeUp); the two may be different threads. MustRing: any.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace muster {

// What one process writes and the other reads. Counts are of bytes since the connection began. It
// begins as fresh memory does: all zeros.
struct RingMemory {
  static constexpr size_t kBytes = 64 << 10;

  alignas(64) std::atomic<uint64_t> written;   // to the ring
  std::atomic<uint32_t> wants_room;            // 1: more is to be written when there is room
  alignas(64) std::atomic<uint64_t> taken;     // from the other's ring
  alignas(64) std::atomic<uint32_t> doorbell;  // odd: this side sleeps; each time another number
  alignas(64) char ring[kBytes];               // byte n of the stream is at n mod kBytes
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);
static_assert(std::atomic<uint32_t>::is_always_lock_free);
// proto/PROTOCOL.md
static_assert(offsetof(RingMemory, wants_room) == 8 && offsetof(RingMemory, taken) == 64 &&
              offsetof(RingMemory, doorbell) == 128 && offsetof(RingMemory, ring) == 192);

class MessageRing {
 public:
  // A longer message breaks the connection. The limit of a header over ZeroMQ, too.
  static constexpr size_t kMaxMessageBytes = 4 << 20;
  // What comes before each.
  static constexpr size_t kLengthBytes = 4;

  // Both outlive this.
  MessageRing(RingMemory& mine, const RingMemory& theirs) : mine_(mine), theirs_(theirs) {}

  // Puts a message into the ring, from its byte `begin` on (of 4 + message.size(): the length comes
  // first), and as much of it as there is room for. Returns where to go on: at 4 + message.size()
  // all of it is in. The other side sees it from Publish on.
  size_t Write(std::string_view message, size_t begin = 0);
  void Publish();
  // Tells the other side whether to ring when there is room again. True: there is some already.
  bool WantRoom(bool wanted);

  enum class Status { kMessage, kNothing, kBroken };
  // The next message, if all of it is there. kBroken: what the other side wrote cannot be; for
  // good.
  Status Take(std::string& message);
  // The connection has ended: what is written from now on, by whoever has the memory, is not taken.
  void EndInput() { input_end_ = theirs_.written.load(std::memory_order_seq_cst); }
  // Whether there is anything to take. Costs a load.
  bool Pending() const {
    return theirs_.written.load(std::memory_order_seq_cst) != taken_ || broken_;
  }

  // Sets the doorbell; then Pending() and WantRoom() must be asked once more before sleeping.
  void PrepareToSleep();
  void WakeUp();

  enum class Reason { kPublished, kTaken };
  // Whether the other side sleeps and is waiting for this. True at most once each time it sleeps.
  bool MustRing(Reason reason);

 private:
  size_t Room(size_t enough);
  void CopyIn(uint64_t at, const char* from, size_t bytes);
  void CopyOut(uint64_t at, char* to, size_t bytes) const;

  RingMemory& mine_;
  const RingMemory& theirs_;
  // This side's own counts: what it has told the other is not read back.
  uint64_t written_ = 0;
  uint64_t taken_ = 0;
  uint64_t input_end_ = ~uint64_t{0};
  uint64_t seen_taken_ = 0;          // by the other side, when there was a need to look
  std::atomic<bool> broken_{false};  // set by senders and receivers
  // Of the message that is being taken: the part that has come.
  std::string partial_;
  size_t length_ = 0;
  bool has_length_ = false;
  std::atomic<uint32_t> rung_{0};  // the other's doorbell when it was rung last
};

}  // namespace muster
