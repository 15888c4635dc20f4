#include "tests/simulation/wire.h"

#include <algorithm>
#include <utility>

namespace muster::testing {

void Wire::Send(Arrive arrive, std::span<const std::byte> tensor, const Urgency& urgency) {
  waiting_.emplace(urgency, Waiting{std::move(arrive), tensor});
  if (!busy_) Transfer();
}

void Wire::Transfer() {
  busy_ = !waiting_.empty();
  if (!busy_) return;
  auto next = waiting_.extract(waiting_.begin());
  const std::span<const std::byte> tensor = next.mapped().tensor;
  const Times times = TimesOf(tensor.size());
  Deliver(std::move(next.mapped().arrive),
          std::make_shared<const Bytes>(tensor.begin(), tensor.end()), times.arrives);
  scheduler_.After(times.leaves, [this, cuts = cuts_] {
    if (cuts == cuts_) Transfer();
  });
}

// The switch between the cards keeps what the receiving one cannot take yet.
Wire::Times Wire::TimesOf(size_t bytes) {
  if (from_ == nullptr) {
    const Duration takes = factor_ * chance_.Between(Duration(0), delays_.most_transfer);
    return {takes, takes};
  }
  const std::chrono::duration<double> seconds(static_cast<double>(bytes) / bytes_per_second_);
  const auto takes = std::chrono::duration_cast<Duration>(seconds);
  const Time now = Clock::now();
  from_->out_free = std::max(now, from_->out_free) + takes;
  to_->in_free = std::max(from_->out_free, to_->in_free + takes);
  return {from_->out_free - now, to_->in_free - now};
}

void Wire::Deliver(Arrive arrive, std::shared_ptr<const Bytes> tensor, Duration after) {
  const Time arrival = Clock::now() + after + chance_.Between(Duration(0), delays_.most_latency);
  last_arrival_ = std::max({arrival, last_arrival_, held_until_});
  scheduler_.At(last_arrival_,
                [this, cuts = cuts_, arrive = std::move(arrive), tensor = std::move(tensor)] {
                  if (cuts == cuts_ || !loses_) arrive(tensor);
                });
}

void Wire::DropBefore(int64_t step) {
  waiting_.erase(waiting_.begin(), waiting_.lower_bound({.step = step}));
}

void Wire::Hold(Duration duration) { held_until_ = std::max(held_until_, Clock::now() + duration); }

void Wire::Cut(bool loses_what_is_under_way) {
  ++cuts_;
  loses_ = loses_what_is_under_way;
  waiting_.clear();
  busy_ = false;
}

}  // namespace muster::testing
