// The orders of the epochs in use, shared by the prefetch threads.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace muster {

using SampleOrder = std::vector<int64_t>;

// Caches the orders of the two epochs requested last: near the end of an epoch some threads already
// work on the next one. Thread-safe.
class EpochOrders {
 public:
  // With `in_order` nothing is shuffled.
  EpochOrders(int64_t size, uint64_t seed, bool in_order = false)
      : size_(size), seed_(seed), in_order_(in_order) {}
  std::shared_ptr<const SampleOrder> Of(int64_t epoch);

 private:
  struct Entry {
    int64_t epoch = -1;
    std::shared_ptr<const SampleOrder> order;
  };
  const int64_t size_;
  const uint64_t seed_;
  const bool in_order_;
  std::mutex mutex_;
  Entry newer_, older_;
};

}  // namespace muster
