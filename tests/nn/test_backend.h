// The backend that the tests of ops and towers run on: one set of cases, a program for each
// backend.
#pragma once

#include <memory>
#include <vector>

#include "worker/backend/backend.h"

namespace muster {

// One that computes in the host's memory, or is made to look so (tests/cuda/host_facing.h).
// `threads` says how many compute where that is for the host to say.
std::unique_ptr<Backend> MakeTestBackend(int threads);

// The numbers of threads that make a difference: one number where the host does not compute.
std::vector<int> TestThreads();

}  // namespace muster
