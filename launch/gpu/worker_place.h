// Where a worker is to run: its card, and what of the host is beside that.
#pragma once

#include <string>
#include <vector>

#include "launch/gpu/gpu.h"

namespace muster {

struct WorkerPlace {
  Gpu card;
  // Locks that the worker inherits, so that they hold as long as it lives.
  std::vector<int> lock_fds;
  std::vector<std::string> environment;  // CUDA_VISIBLE_DEVICES=<UUID>: it sees this card alone
  std::vector<int> cores;                // of the card's NUMA node; empty: all that there are
  int memory_node = -1;                  // for its memory, page-locked memory too; -1: any
};

}  // namespace muster
