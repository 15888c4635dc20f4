// A local link without what is built on it, for tests.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <string>

#include "common/base/unique_fd.h"
#include "common/transport/local/local_address.h"
#include "common/transport/local/local_link.h"
#include "tests/job/test_job.h"

namespace muster::testing {

inline LinkOptions SmallLink() {
  return {.max_message_bytes = 1 << 20,
          .max_queued_messages = 100,
          .max_received_messages = 100,
          .token = TestToken()};
}

inline std::string UniqueLocalEndpoint() {
  std::random_device random;
  return fmt::format("local://@muster-test-{}-{:08x}", ::getpid(), random());
}

inline UniqueFd ConnectRaw(const std::string& endpoint) {
  const LocalAddress address(endpoint);
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  EXPECT_EQ(::connect(fd.get(), address.get(), address.size), 0) << std::strerror(errno);
  return fd;
}

}  // namespace muster::testing
