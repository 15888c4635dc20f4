// Measures how much memory a group of processes uses, counting shared pages only once.
#pragma once

#include <sys/types.h>

#include <thread>
#include <vector>

namespace muster::bench {

// Measures periodically in its own thread.
class MemoryWatch {
 public:
  explicit MemoryWatch(std::vector<pid_t> processes);

  // Stops measuring. Returns the largest sum of all processes' Pss in bytes (man 5 proc,
  // smaps_rollup): a page that n processes map counts 1/n in each.
  double Peak();

 private:
  double peak_ = 0;
  std::jthread thread_;
};

}  // namespace muster::bench
