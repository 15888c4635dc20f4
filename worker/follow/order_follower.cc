#include "worker/follow/order_follower.h"

#include <optional>
#include <utility>

#include "common/base/log.h"
#include "common/trace/trace.h"

namespace muster {

Order OrderFollower::Run() {
  for (;;) {
    waited_since_ = Client::Clock::now();
    Order order = [this] {
      const trace::Span span("wait", "order");
      return client_.NextOrder();
    }();
    if (order.kind == Order::Kind::kStop) return order;
    // Nothing may wait in a handler: a simulation runs other workers meanwhile, which have their
    // own.
    bool was_reset = order.kind == Order::Kind::kReset;
    try {
      if (!was_reset) Do(std::move(order));
    } catch (const WasReset&) {
      was_reset = true;
    }
    if (!was_reset) continue;
    LogWarning("Fell behind; other workers took over. Resynchronizing.");
    work_.DropAll();
    client_.ReportReady();
  }
}

void OrderFollower::Do(Order order) {
  if (order.kind == Order::Kind::kEvaluate) {
    work_.Evaluate(order);
  } else if (order.taken_over) {
    work_.TakeOver(std::move(order));
  } else {
    work_.Train(std::move(order));
  }
}

void OrderFollower::DoUrgent() {
  while (std::optional<Order> order = client_.NextUrgentOrder()) {
    if (order->kind == Order::Kind::kReset) throw WasReset();
    work_.TakeOver(std::move(*order));
  }
}

// Slices that were taken over are urgent themselves. All weights of their step have been published.
void OrderFollower::AwaitChunk(const Order& order, size_t chunk) {
  const auto wait = order.taken_over ? Client::Wait::kForChunk : Client::Wait::kForUrgent;
  if (!client_.AwaitChunk(order.version, chunk, wait)) throw Superseded();
}

void OrderFollower::AwaitAll(const Order& order, Client::Of of,
                             const std::function<void(size_t chunk)>& arrived) {
  const auto wait = order.taken_over ? Client::Wait::kForChunk : Client::Wait::kForUrgent;
  for (size_t c = 0; c < client_.chunks().size();) {
    if (client_.AwaitChunk(order.version, c, wait, of)) {
      if (arrived) arrived(c);
      ++c;
    } else {
      DoUrgent();
    }
  }
}

bool OrderFollower::UseBuffer(const OrderPart& part, int64_t step) {
  return buffer_used_.insert_or_assign(part.buffer, step).second;
}

void OrderFollower::GiveBackBuffers(int64_t step,
                                    const std::function<void(std::span<float>)>& forget) {
  constexpr int64_t kKeptSteps = 8;
  std::erase_if(buffer_used_, [&](const auto& buffer) {
    const auto& [number, last_step] = buffer;
    if (step - last_step < kKeptSteps) return false;
    if (forget) forget(client_.GradientBuffer(number));
    client_.GiveBackGradientBuffer(number);
    return true;
  });
}

}  // namespace muster
