#include "common/transport/local/local_connection.h"

#include "common/base/error.h"

namespace muster {
namespace {

RingMemory& RingIn(const SharedMemory& memory) {
  if (memory.bytes() < sizeof(RingMemory)) {
    throw Error(ExitCode::kPeerFailed, "the memory for messages has {} bytes, expected at least {}",
                memory.bytes(), sizeof(RingMemory));
  }
  return *reinterpret_cast<RingMemory*>(const_cast<float*>(memory.floats().data()));
}

}  // namespace

LocalConnection::Memory::Memory(SharedMemory mine_memory, SharedMemory theirs_memory)
    : mine(std::move(mine_memory)),
      theirs(std::move(theirs_memory)),
      ring(RingIn(mine), RingIn(theirs)) {}

void LocalConnection::Attach(SharedMemory mine, SharedMemory theirs) {
  memory_ = std::make_unique<Memory>(std::move(mine), std::move(theirs));
}

void LocalConnection::Append(std::string_view message, std::span<const int> fds) {
  if (!memory_) return socket_.Append(message, fds);
  MUSTER_CHECK(fds.empty());
  Memory& memory = *memory_;
  size_t begin = 0;
  if (memory.unsent.empty()) {
    begin = memory.ring.Write(message);
    memory.unpublished = memory.unpublished || begin > 0;
    if (begin == MessageRing::kLengthBytes + message.size()) return;
    memory.begin = begin;
  }
  memory.unsent.emplace_back(message);
  memory.unsent_bytes += message.size();
}

bool LocalConnection::Flush() {
  if (socket_.unsent() > 0 && !socket_.Flush()) return false;
  if (memory_) FlushMemory();
  return true;
}

void LocalConnection::FlushMemory() {
  Memory& memory = *memory_;
  const bool waited = !memory.unsent.empty();
  do {
    while (!memory.unsent.empty()) {
      const std::string& message = memory.unsent.front();
      const size_t begin = memory.ring.Write(message, memory.begin);
      memory.unpublished = memory.unpublished || begin > memory.begin;
      memory.begin = begin;
      if (begin < MessageRing::kLengthBytes + message.size()) break;
      memory.unsent_bytes -= message.size();
      memory.unsent.pop_front();
      memory.begin = 0;
    }
    if (std::exchange(memory.unpublished, false)) {
      memory.ring.Publish();
      if (memory.ring.MustRing(MessageRing::Reason::kPublished)) socket_.Ring();
    }
  } while (waited && memory.ring.WantRoom(!memory.unsent.empty()));
}

LocalConnection::Status LocalConnection::Receive(bool look_at_socket, std::string& message,
                                                 std::vector<UniqueFd>& fds) {
  if (look_at_socket && !closed_) {
    switch (socket_.Receive(message, fds)) {
      case PacketSocket::Status::kMessage:
        return Status::kMessage;
      case PacketSocket::Status::kMalformed:
        return Status::kMalformed;
      case PacketSocket::Status::kClosed:
        closed_ = true;
        if (memory_) memory_->ring.EndInput();
        break;
      case PacketSocket::Status::kDoorbell:
      case PacketSocket::Status::kNothing:
        break;
    }
  }
  // By now, everything that was written before the doorbell or the end of file is visible in
  // memory.
  return memory_ ? TakeFromMemory(message) : closed_ ? Status::kClosed : Status::kNothing;
}

LocalConnection::Status LocalConnection::TakeFromMemory(std::string& message) {
  switch (memory_->ring.Take(message)) {
    case MessageRing::Status::kMessage:
      // Ring when the last message is taken, because the reader may go to sleep without another
      // call.
      if (!memory_->ring.Pending() && memory_->ring.MustRing(MessageRing::Reason::kTaken)) {
        socket_.Ring();
      }
      return Status::kMessage;
    case MessageRing::Status::kBroken:
      broken_ = true;
      return Status::kMalformed;
    case MessageRing::Status::kNothing:
      break;
  }
  if (memory_->ring.MustRing(MessageRing::Reason::kTaken)) socket_.Ring();
  return closed_ ? Status::kClosed : Status::kNothing;
}

void LocalConnection::PrepareToSleep() {
  if (memory_) memory_->ring.PrepareToSleep();
}

void LocalConnection::WakeUp() {
  if (memory_) memory_->ring.WakeUp();
}

}  // namespace muster
