// A gradient that a relay sends.
#pragma once

#include "common/link/link.h"
#include "proto/wire.pb.h"

namespace muster {

struct RelayedGradient {
  wire::WorkerMessage message;
  Payload payload;
};

}  // namespace muster
