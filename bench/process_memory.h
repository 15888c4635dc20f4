// How much memory some processes use together, pages that they share counted once.
#pragma once

#include <sys/types.h>

#include <thread>
#include <vector>

namespace muster::bench {

// Watches processes from a thread of its own.
class MemoryWatch {
 public:
  explicit MemoryWatch(std::vector<pid_t> processes);

  // Stops watching. The largest sum, in bytes, of all processes' Pss at one time (man 5 proc,
  // smaps_rollup): a page that n processes map counts 1/n in each.
  double Peak();

 private:
  double peak_ = 0;
  std::jthread thread_;
};

}  // namespace muster::bench
