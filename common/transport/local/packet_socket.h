// An AF_UNIX SOCK_SEQPACKET socket whose packets are messages, and which can hand over file
// descriptors. What does not fit into the socket's buffer waits here; nothing ever blocks.
//
// A packet of one zero byte is a doorbell: it says nothing and wakes the process that polls the
// socket. No message begins with that byte.
//
// Threads: those who send (Append…, Flush, Ring) one at a time, those who receive one at a time;
// Ring at any time.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/fd.h"

namespace muster {

class PacketSocket {
 public:
  explicit PacketSocket(UniqueFd fd) : fd_(std::move(fd)) {}

  int fd() const { return fd_.get(); }
  // The user id of the process at the other end; -1: unknown.
  int64_t PeerUser() const;

  // Adds a packet, with copies of `fds`, to those that the next Flush sends.
  void Append(std::string_view message, std::span<const int> fds = {});
  // Sends as much as the socket takes. False: the connection is gone.
  bool Flush();
  // Bytes that wait for room in the socket's buffer.
  size_t unsent() const { return unsent_bytes_; }
  // Wakes the other side. If its buffer is full it is awake, or about to be.
  void Ring();

  enum class Status { kMessage, kDoorbell, kNothing, kClosed, kMalformed };
  // The next packet: the message, and its descriptors, which are added to `fds`. kMalformed: too
  // long.
  Status Receive(std::string& message, std::vector<UniqueFd>& fds);

 private:
  struct Packet {
    std::string bytes;
    std::vector<UniqueFd> fds;
  };
  // A Hello with thousands of layers.
  static constexpr size_t kMaxPacketBytes = 512 << 10;
  static constexpr size_t kMaxDescriptors = 4;

  // 1: sent; 0: no room; -1: gone.
  int Send(const Packet& packet);

  UniqueFd fd_;
  std::deque<Packet> unsent_;
  size_t unsent_bytes_ = 0;
  std::unique_ptr<char[]> buffer_;  // kMaxPacketBytes; its pages are there once they are used
};

}  // namespace muster
