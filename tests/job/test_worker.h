// The scripted worker of tests: follows the server's orders with gradients in closed form, which it
// adds as their definition says. Derived classes choose the numbers, and are told where it is.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "worker/client/client.h"
#include "worker/follow/order_follower.h"

namespace muster::testing {

enum class Point {
  kJoined,      // welcomed, but has not sent Ready
  kReady,       // has reported that it is ready
  kForward,     // has the weights of a step, but has reported no loss
  kLosses,      // has reported all losses, and pushed nothing
  kHalfPushed,  // has pushed some chunks, which have been updated and published
  kPushed,      // has pushed everything
  kTakenOver,   // as kForward, but for work taken over from another worker
  kEvaluate,    // before its first block
  kEvaluated,   // has reported its second block
  kLastBlock,   // before the last block of the test set
  kReset,       // others have done its work
  kEnd,         // the server has sent Stop
};

class TestWorker : private OrderWork {
 protected:
  // Follows the client's orders until Stop, which it returns.
  Order Follow(Client& client, const std::string& convolutions = "");

  // `order`: of version 0 outside of work.
  virtual void Reached(Point /*point*/, const Order& /*order*/) {}
  virtual float Gradient(const Order& order, int64_t slice, size_t i) = 0;
  virtual double Loss(const Order& order, int64_t slice) = 0;
  // Fills in the loss and what else the block has. Its number, size and version are known.
  virtual void FillBlock(const Order& order, int64_t block, wire::EvaluatedBlock& result) = 0;
  // The order in which chunks are pushed.
  virtual std::vector<size_t> Sequence(size_t chunks);

  Client& client() { return *client_; }

 private:
  void Train(Order order) override;
  void TakeOver(Order order) override;
  void Evaluate(const Order& order) override;
  void DropAll() override { Reached(Point::kReset, {.version = 0}); }
  void ReportLosses(const Order& order);
  void Push(const Order& order, const OrderPart& part);

  Client* client_ = nullptr;
  OrderFollower* follower_ = nullptr;
};

}  // namespace muster::testing
