// The backend for tests of ops and towers. The same tests are built into a program for each
// backend.
#pragma once

#include <memory>
#include <vector>

#include "worker/backend/backend.h"

namespace muster {

// A backend that computes in host memory, or looks like it (host_facing.h). `threads`
// only matters if the host computes.
std::unique_ptr<Backend> MakeTestBackend(int threads);

// The numbers of threads to test; a single one if the host does not compute.
std::vector<int> TestThreads();

}  // namespace muster
