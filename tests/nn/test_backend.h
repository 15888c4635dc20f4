// The backend that the tests of ops and towers run on: one set of cases, a program for each
// backend.
#pragma once

#include <memory>

#include "worker/backend/backend.h"

namespace muster {

// One that computes in the host's memory, or is made to look so (tests/cuda/host_facing.h).
// `threads` says how many compute where that is for the host to say.
std::unique_ptr<Backend> MakeTestBackend(int threads);

}  // namespace muster
