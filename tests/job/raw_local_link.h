// A bare local link, for tests that act as its server or its worker.
#pragma once

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <system_error>
#include <vector>

#include "common/base/fd.h"
#include "common/base/shared_memory.h"
#include "common/link/wire_values.h"
#include "common/plan/gradient_layout.h"
#include "common/transport/local/local_address.h"
#include "common/transport/local/local_connection.h"
#include "common/transport/local/message_ring.h"

namespace muster::testing {

// Unique among all calls of all running tests.
inline std::string UniqueLocalEndpoint() {
  static const uint32_t process = std::random_device()();
  static std::atomic<int> number = 0;
  return fmt::format("local://@muster-test-{}-{:08x}-{}", ::getpid(), process, number++);
}

inline UniqueFd NewLocalSocket() {
  return UniqueFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

inline UniqueFd ConnectRaw(const std::string& endpoint) {
  const LocalAddress address(endpoint);
  UniqueFd fd = NewLocalSocket();
  if (::connect(fd.get(), address.get(), address.size) != 0) {
    throw std::system_error(errno, std::generic_category(), "cannot connect to " + endpoint);
  }
  return fd;
}

// A Welcome to a run with this many weights in two chunks and two gradient buffers, and the memory
// that comes with it: weight buffers, gradient buffers, messages to the server, messages to the
// worker.
constexpr size_t kRawFloats = 64;
constexpr size_t kRawArenas = 2 * SharedArenaFloats(kRawFloats) * sizeof(float);
constexpr size_t kRawBytes[] = {kRawArenas, kRawArenas, sizeof(RingMemory), sizeof(RingMemory)};

inline wire::ServerMessage RawWelcome() {
  wire::ServerMessage message;
  wire::Welcome& welcome = *message.mutable_welcome();
  welcome.add_chunk_end(kRawFloats / 2);
  welcome.add_chunk_end(kRawFloats);
  welcome.set_slices(2);
  welcome.add_subtree();
  welcome.set_buffers(2);
  return message;
}

// The server's weight buffers.
inline SharedMemory RawWeights() {
  return SharedMemory::Create("test-weights", kRawBytes[0], SharedMemory::Access::kReadWrite);
}

// Maps the memory again. The descriptor remains open.
inline SharedMemory MapAgain(const UniqueFd& fd, SharedMemory::Access access) {
  return SharedMemory::Map(UniqueFd(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0)), access);
}

// Makes a worker's connection use the memory of its Welcome.
inline void AttachRaw(LocalConnection& connection, const std::vector<UniqueFd>& fds) {
  connection.Attach(MapAgain(fds[2], SharedMemory::Access::kReadWrite),
                    MapAgain(fds[3], SharedMemory::Access::kRead));
}

}  // namespace muster::testing
