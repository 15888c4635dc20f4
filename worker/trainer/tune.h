// Which algorithms this worker computes with, where a device's are chosen by timing
// (worker.autotune).
#pragma once

#include <cstdint>

#include "common/graph/graph.h"
#include "proto/config_fwd.h"
#include "worker/backend/backend.h"
#include "worker/client/client.h"

namespace muster {

// Before anything is planned on `backend`: what is planned then uses the job's choice. Times
// algorithms for it if the server wants this worker to. Nothing, if the backend goes by shape.
void Tune(const config::Config& config, const Graph& graph, int64_t test_samples, Backend& backend,
          Client& client);

}  // namespace muster
