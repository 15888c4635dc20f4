// The command line of muster-worker.
#pragma once

#include <cstdint>
#include <string>

namespace muster {

struct WorkerArguments {
  std::string config, endpoint, token_file, log_dir;
  // A relay has endpoints for this host's workers and for relays of other hosts, and may have that
  // of the relay through which it reaches the server.
  std::string relay, relay_bind, relay_via;
  bool gpu_sums = false;    // the relay adds gradients in GPUs
  int relay_patience = 10;  // seconds to wait for the relay at relay_via
  uint32_t rank = 0;
  int local_rank = -1;         // among the workers on this host; -1: unknown
  std::string rank_from;       // the launcher that gave the rank, for the log
  bool through_relay = false;  // of this host, which the worker of local rank 0 starts
  int parent = 0;
  int program_fd = -1;
  bool memory = false, join = false, evaluate = false, describe_gpu = false;
  std::string predict, images, weights;
  bool training_set = false, validation_set = false;
};

}  // namespace muster
