// The loop in which a worker follows the server's orders: one after the other, and urgent ones also
// in the middle of other work.
//
// An urgent order is a Reset, or slices that another worker can no longer compute. It can arrive
// while the worker waits for weights. The worker then abandons its pass, does what is urgent, and
// begins the pass again (Repeat). A Reset ends everything that is under way; the worker reports
// that it is ready, and gets new orders.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>

#include "worker/client/client.h"

namespace muster {

// What a worker does on an order.
class OrderWork {
 public:
  virtual ~OrderWork() = default;
  // Computes the worker's slices of a step.
  virtual void Train(Order order) = 0;
  // Computes slices of another worker, perhaps in the middle of other work.
  virtual void TakeOver(Order order) = 0;
  virtual void Evaluate(const Order& order) = 0;
  // The worker was reset: others do its work. Drops all that is under way.
  virtual void DropAll() = 0;
};

// Used on the worker's compute thread. The references must outlive it.
class OrderFollower {
 public:
  OrderFollower(Client& client, OrderWork& work) : client_(client), work_(work) {}

  // Follows orders until Stop, which it returns.
  Order Run();
  // When Run began to wait for the current order.
  Client::Clock::time_point waited_since() const { return waited_since_; }

  // The following are called by the work. If the worker was reset, they throw WasReset, which Run
  // catches.
  struct WasReset {};

  // Does what is urgent.
  void DoUrgent();
  // Waits for a chunk of the order's weights within a pass of Repeat.
  void AwaitChunk(const Order& order, size_t chunk);
  // Calls `pass` until nothing urgent interrupts it, and `abandon` after each time that something
  // does. Returns what `pass` returns.
  template <typename Pass, typename Abandon>
  auto Repeat(const Pass& pass, const Abandon& abandon) {
    for (;;) {
      try {
        return pass();
      } catch (const Superseded&) {
        abandon();
      }
      DoUrgent();
    }
  }
  // Waits for all weights of the order, or their average, and does what is urgent meanwhile. Calls
  // `arrived` for each chunk, in order.
  void AwaitAll(const Order& order, Client::Of of = Client::Of::kWeights,
                const std::function<void(size_t chunk)>& arrived = {});

  // Called before the part's gradient buffer is used. Returns whether it is a new one.
  bool UseBuffer(const OrderPart& part, int64_t step);
  // Gives back the buffers of takeovers and of a formerly larger share, each as large as the model,
  // a few steps after their last use, in case more workers are lost. Calls `forget` for each.
  void GiveBackBuffers(int64_t step, const std::function<void(std::span<float>)>& forget = {});

 private:
  struct Superseded {};

  void Do(Order order);

  Client& client_;
  OrderWork& work_;
  Client::Clock::time_point waited_since_;
  std::map<size_t, int64_t> buffer_used_;  // buffer → the last step that used it
};

}  // namespace muster
