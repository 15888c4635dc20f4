#include "common/transport/local/message_ring.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace muster {
namespace {

constexpr size_t kBytes = RingMemory::kBytes;
constexpr auto kInOrder = std::memory_order_seq_cst;
static_assert(std::has_single_bit(kBytes) && std::endian::native == std::endian::little);

}  // namespace

// Returns the number of writable bytes. Reads the other side's memory only if fewer than `enough`
// bytes are known to be free.
size_t MessageRing::Room(size_t enough) {
  if (const size_t known = kBytes - (written_ - seen_taken_); known >= enough) return known;
  const uint64_t taken = theirs_.taken.load(kInOrder);
  if (taken < seen_taken_ || taken > written_) {
    broken_ = true;
    return 0;
  }
  seen_taken_ = taken;
  return kBytes - (written_ - taken);
}

void MessageRing::CopyIn(uint64_t at, const char* from, size_t bytes) {
  if (bytes == 0) return;
  const size_t begin = at % kBytes;
  const size_t first = std::min(bytes, kBytes - begin);
  std::memcpy(mine_.ring + begin, from, first);
  std::memcpy(mine_.ring, from + first, bytes - first);
}

void MessageRing::CopyOut(uint64_t at, char* to, size_t bytes) const {
  const size_t begin = at % kBytes;
  const size_t first = std::min(bytes, kBytes - begin);
  std::memcpy(to, theirs_.ring + begin, first);
  std::memcpy(to + first, theirs_.ring, bytes - first);
}

size_t MessageRing::Write(std::string_view message, size_t begin) {
  size_t room = Room(kLengthBytes + message.size());
  if (begin < kLengthBytes) {  // the length is never written in pieces
    if (room < kLengthBytes) return begin;
    const auto length = static_cast<uint32_t>(message.size());
    char prefix[kLengthBytes];
    std::memcpy(prefix, &length, sizeof prefix);
    CopyIn(written_, prefix, sizeof prefix);
    written_ += kLengthBytes;
    room -= kLengthBytes;
    begin = kLengthBytes;
  }
  const std::string_view rest = message.substr(begin - kLengthBytes);
  const size_t bytes = std::min(rest.size(), room);
  CopyIn(written_, rest.data(), bytes);
  written_ += bytes;
  return begin + bytes;
}

void MessageRing::Publish() { mine_.written.store(written_, kInOrder); }

bool MessageRing::WantRoom(bool wanted) {
  mine_.wants_room.store(wanted ? 1 : 0, kInOrder);
  return wanted && Room(kBytes + 1) >= kLengthBytes;
}

MessageRing::Status MessageRing::Take(std::string& message) {
  const uint64_t written = std::min(theirs_.written.load(kInOrder), input_end_);
  uint64_t there = written - taken_;
  if (there > kBytes) broken_ = true;  // also if `written` went backwards
  if (broken_) return Status::kBroken;
  if (there == 0) return Status::kNothing;
  if (!has_length_) {
    uint32_t length = 0;
    if (there >= kLengthBytes) CopyOut(taken_, reinterpret_cast<char*>(&length), kLengthBytes);
    if (there < kLengthBytes || length > kMaxMessageBytes) {
      broken_ = true;
      return Status::kBroken;
    }
    has_length_ = true;
    length_ = length;
    partial_.clear();
    taken_ += kLengthBytes;
    there -= kLengthBytes;
  }
  const size_t before = partial_.size();
  const size_t bytes = std::min<uint64_t>(there, length_ - before);
  partial_.resize(before + bytes);
  CopyOut(taken_, partial_.data() + before, bytes);
  taken_ += bytes;
  mine_.taken.store(taken_, kInOrder);
  if (partial_.size() < length_) return Status::kNothing;
  has_length_ = false;
  message.swap(partial_);
  return Status::kMessage;
}

void MessageRing::PrepareToSleep() {
  const uint32_t doorbell = mine_.doorbell.load(std::memory_order_relaxed);
  mine_.doorbell.store((doorbell + 1) | 1, kInOrder);  // the next odd number
}

void MessageRing::WakeUp() {
  const uint32_t doorbell = mine_.doorbell.load(std::memory_order_relaxed);
  if ((doorbell & 1) != 0) mine_.doorbell.store(doorbell + 1, std::memory_order_relaxed);
}

bool MessageRing::MustRing(Reason reason) {
  if (reason == Reason::kTaken && theirs_.wants_room.load(kInOrder) == 0) return false;
  const uint32_t doorbell = theirs_.doorbell.load(kInOrder);
  return (doorbell & 1) != 0 && rung_.exchange(doorbell, std::memory_order_relaxed) != doorbell;
}

}  // namespace muster
