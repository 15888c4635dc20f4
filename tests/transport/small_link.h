// A link with small buffers, for tests.
#pragma once

#include "common/link/link.h"
#include "tests/job/test_job.h"

namespace muster::testing {

inline LinkOptions SmallLink() {
  return {.max_message_bytes = 1 << 20,
          .max_queued_messages = 100,
          .max_received_messages = 100,
          .token = TestToken()};
}

}  // namespace muster::testing
