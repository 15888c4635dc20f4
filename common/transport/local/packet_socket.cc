#include "common/transport/local/packet_socket.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "common/base/error.h"

namespace muster {
namespace {

constexpr char kDoorbell[] = {0};

}  // namespace

int64_t PacketSocket::PeerUser() const {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (::getsockopt(fd_.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) return -1;
  return credentials.uid;
}

void PacketSocket::Append(std::string_view message, std::span<const int> fds) {
  MUSTER_CHECK(fds.size() <= kMaxDescriptors);
  Packet packet{std::string(message), {}};
  for (const int fd : fds) packet.fds.emplace_back(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  unsent_bytes_ += packet.bytes.size();
  unsent_.push_back(std::move(packet));
}

int PacketSocket::Send(const Packet& packet) {
  iovec data{const_cast<char*>(packet.bytes.data()), packet.bytes.size()};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxDescriptors * sizeof(int))] = {};
  if (!packet.fds.empty()) {
    header.msg_control = control;
    header.msg_controllen = CMSG_SPACE(packet.fds.size() * sizeof(int));
    cmsghdr* const entry = CMSG_FIRSTHDR(&header);
    entry->cmsg_level = SOL_SOCKET;
    entry->cmsg_type = SCM_RIGHTS;
    entry->cmsg_len = CMSG_LEN(packet.fds.size() * sizeof(int));
    for (size_t i = 0; i < packet.fds.size(); ++i) {
      const int fd = packet.fds[i].get();
      std::memcpy(CMSG_DATA(entry) + i * sizeof(int), &fd, sizeof fd);
    }
  }
  for (;;) {
    if (::sendmsg(fd_.get(), &header, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return 1;
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == ENOBUFS) return 0;
    if (errno != EMSGSIZE) return -1;
    // The buffer must be large enough for a whole Hello.
    const int wanted = static_cast<int>(2 * packet.bytes.size());
    int now = 0;
    socklen_t size = sizeof now;
    (void)::setsockopt(fd_.get(), SOL_SOCKET, SO_SNDBUF, &wanted, sizeof wanted);
    (void)::getsockopt(fd_.get(), SOL_SOCKET, SO_SNDBUF, &now, &size);
    if (now < wanted) return -1;
  }
}

bool PacketSocket::Flush() {
  while (!unsent_.empty()) {
    const int sent = Send(unsent_.front());
    if (sent <= 0) return sent == 0;
    unsent_bytes_ -= unsent_.front().bytes.size();
    unsent_.pop_front();
  }
  return true;
}

void PacketSocket::Ring() {
  (void)::send(fd_.get(), kDoorbell, sizeof kDoorbell, MSG_DONTWAIT | MSG_NOSIGNAL);
}

PacketSocket::Status PacketSocket::Receive(std::string& message, std::vector<UniqueFd>& fds) {
  if (!buffer_) buffer_ = std::make_unique_for_overwrite<char[]>(kMaxPacketBytes);
  iovec data{buffer_.get(), kMaxPacketBytes};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxDescriptors * sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof control;
  ssize_t size;
  do {
    size = ::recvmsg(fd_.get(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (size < 0 && errno == EINTR);
  if (size < 0) return errno == EAGAIN ? Status::kNothing : Status::kClosed;
  if (size == 0) return Status::kClosed;
  for (cmsghdr* entry = CMSG_FIRSTHDR(&header); entry != nullptr;
       entry = CMSG_NXTHDR(&header, entry)) {
    if (entry->cmsg_level != SOL_SOCKET || entry->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (entry->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(entry) + i * sizeof(int), sizeof fd);
      fds.emplace_back(fd);
    }
  }
  if ((header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) return Status::kMalformed;
  message.assign(buffer_.get(), static_cast<size_t>(size));
  return message == std::string_view(kDoorbell, sizeof kDoorbell) ? Status::kDoorbell
                                                                  : Status::kMessage;
}

}  // namespace muster
