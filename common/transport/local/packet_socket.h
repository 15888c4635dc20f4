// An AF_UNIX SOCK_SEQPACKET socket. Its packets are messages and may carry file descriptors.
// Nothing blocks; packets that do not fit into the socket's buffer wait here.
//
// A packet of one zero byte is a doorbell: it only wakes the process that polls the socket. No
// message begins with that byte.
//
// Threads: one sender (Append, Flush) and one receiver at a time. Any thread may call Ring at any
// time.
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
  // The user ID of the process at the other end; -1: unknown.
  int64_t PeerUser() const;

  // Queues a packet, with duplicates of `fds`, for the next Flush.
  void Append(std::string_view message, std::span<const int> fds = {});
  // Sends as much as the socket accepts. Returns false if the connection is closed.
  bool Flush();
  // Number of bytes that wait for room in the socket's buffer.
  size_t unsent() const { return unsent_bytes_; }
  // Wakes the other side. If its socket buffer is full, it is already awake or about to wake.
  void Ring();

  enum class Status { kMessage, kDoorbell, kNothing, kClosed, kMalformed };
  // Reads the next packet and appends its descriptors to `fds`. kMalformed: the packet is too long.
  Status Receive(std::string& message, std::vector<UniqueFd>& fds);

 private:
  struct Packet {
    std::string bytes;
    std::vector<UniqueFd> fds;
  };
  // Large enough for a Hello with thousands of layers.
  static constexpr size_t kMaxPacketBytes = 512 << 10;
  static constexpr size_t kMaxDescriptors = 4;

  // Returns 1 if sent, 0 if there is no room, -1 if the connection is closed.
  int Send(const Packet& packet);

  UniqueFd fd_;
  std::deque<Packet> unsent_;
  size_t unsent_bytes_ = 0;
  std::unique_ptr<char[]> buffer_;  // kMaxPacketBytes; pages are allocated on first use
};

}  // namespace muster
