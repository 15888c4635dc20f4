#include "worker/data/epoch_order.h"

#include <numeric>
#include <utility>

#include "common/base/error.h"
#include "common/base/random.h"
#include "common/plan/step_plan.h"
#include "worker/data/pipeline.h"

namespace muster {
namespace {

__extension__ using Wide = unsigned __int128;

SampleOrder InOrder(int64_t size) {
  SampleOrder order(static_cast<size_t>(size));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

}  // namespace

// The Fisher-Yates shuffle (Durstenfeld, CACM 7, 1964): place i swaps with one of 0 … i. The choice
// floor(r (i + 1) / 2^64) from 64 random bits r has a bias below (i + 1) / 2^64. Each numbered
// block of random bits serves two places; kMostSamples is the limit of 32-bit block numbers.
SampleOrder EpochOrder(int64_t size, uint64_t seed, int64_t epoch) {
  MUSTER_CHECK(0 <= size && size <= StepPlan::kMostSamples);
  MUSTER_CHECK(epoch >= 0);
  SampleOrder order = InOrder(size);
  const RandomStream stream(seed, RandomPurpose::kShuffle, /*place=*/0,
                            static_cast<uint32_t>(epoch), /*sample=*/0);
  const auto draw = [](uint32_t high, uint32_t low, int64_t choices) {
    const uint64_t bits = static_cast<uint64_t>(high) << 32 | low;
    return static_cast<int64_t>((static_cast<Wide>(bits) * static_cast<Wide>(choices)) >> 64);
  };
  for (int64_t pair = (size - 1) / 2; pair >= 0 && size > 0; --pair) {
    const auto block = stream.Block(static_cast<uint32_t>(pair));
    const int64_t odd = 2 * pair + 1, even = 2 * pair;
    if (odd < size) std::swap(order[odd], order[draw(block[0], block[1], odd + 1)]);
    std::swap(order[even], order[draw(block[2], block[3], even + 1)]);
  }
  return order;
}

std::shared_ptr<const SampleOrder> EpochOrders::Of(int64_t epoch) {
  // Held while shuffling, so that no other thread shuffles the same order.
  const std::lock_guard lock(mutex_);
  if (in_order_) epoch = 0;  // all have one order
  if (newer_.epoch == epoch) return newer_.order;
  if (older_.epoch == epoch) return older_.order;
  auto order =
      std::make_shared<SampleOrder>(in_order_ ? InOrder(size_) : EpochOrder(size_, seed_, epoch));
  older_ = std::exchange(newer_, {epoch, std::move(order)});
  return newer_.order;
}

}  // namespace muster
