// One connection of the local link: an AF_UNIX SOCK_SEQPACKET socket whose packets each hold
// several messages, and which can hand over file descriptors.
//
// A packet is a sequence of (length: 4 bytes, little-endian; message). What does not fit into the
// socket's buffer waits here; nothing ever blocks. One thread uses a PacketSocket at a time.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/unique_fd.h"

namespace muster {

class PacketSocket {
 public:
  explicit PacketSocket(UniqueFd fd) : fd_(std::move(fd)) {}

  int fd() const { return fd_.get(); }
  // The user id of the process at the other end; -1: unknown.
  int64_t PeerUser() const;

  // Adds a message to the packet that the next Flush sends.
  void Append(std::string_view message);
  // A message in a packet of its own, with copies of `fds`.
  void AppendWithDescriptors(std::string_view message, std::span<const int> fds);
  // Sends as much as the socket takes. False: the connection is gone.
  bool Flush();
  // Bytes and descriptors that wait for room in the socket's buffer.
  bool HasUnsent() const { return !unsent_.empty(); }
  size_t unsent_packets() const { return unsent_.size(); }

  enum class Status { kPacket, kNothing, kClosed, kMalformed };
  // The next packet: its messages are added to `messages`, its descriptors to `fds`. kMalformed:
  // not as described above (nothing is added).
  Status Receive(std::vector<std::string>& messages, std::vector<UniqueFd>& fds);

 private:
  struct Packet {
    std::string bytes;
    std::vector<UniqueFd> fds;
  };
  // Packets stay well below the smallest default of net.core.wmem_default.
  static constexpr size_t kPacketBytes = 32 << 10;
  // … but for a single message that is longer: a Hello with thousands of layers.
  static constexpr size_t kMaxPacketBytes = 512 << 10;
  static constexpr size_t kMaxDescriptors = 4;

  // 1: sent; 0: no room; -1: gone.
  int Send(const Packet& packet);

  UniqueFd fd_;
  std::deque<Packet> unsent_;
  std::vector<char> buffer_;
};

}  // namespace muster
