// A simulated worker process: the real client and loop of orders (worker/client, worker/follow),
// and instead of the trainer the same sequence of calls. It waits for weights layer by layer,
// reports each slice's loss before its gradients, and pushes chunk by chunk. Computing takes time,
// in which weights may be overwritten. The results are then wrong.
#pragma once

#include <functional>
#include <optional>
#include <utility>

#include "tests/protocol/model_job.h"
#include "tests/simulation/network.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/scheduler.h"
#include "worker/client/client.h"
#include "worker/follow/order_follower.h"

namespace muster::testing {

struct WorkerTraits {
  std::optional<uint32_t> rank;  // the requested rank
  int64_t pid = 0;
  bool shares_memory = true;
  Duration slice_time{};  // of a forward pass, and the same for backward
  Deadly* deadly = nullptr;
  // The relay of its host; returns null while there is none. Not set: it connects to the server.
  std::function<const SimulatedProcess*()> relay;
};

class SimulatedWorker final : private OrderWork {
 public:
  SimulatedWorker(const ModelJob& job, Chance& chance, Network& network, SimulatedProcess& process,
                  WorkerTraits traits)
      : job_(job), chance_(chance), network_(network), process_(process), traits_(traits) {}

  // Runs until Stop. Throws Error if the worker fails, and Killed if its work kills it.
  void Run();
  // Multiplies all later durations by this factor.
  void SlowDown(int64_t factor) { slowness_ = factor; }
  void Leave() {
    if (client_ != nullptr) client_->Leave();
  }

 private:
  void Train(Order order) override {
    for (const OrderPart& part : order.parts) Compute(order, part);
  }
  void TakeOver(Order order) override { Train(std::move(order)); }
  void Evaluate(const Order& order) override;
  void DropAll() override {}
  void Compute(const Order& order, const OrderPart& part);
  // Waits for the weights and reads them. Returns whether they are correct.
  bool Forward(const Order& order);
  bool ForwardOnce(const Order& order);
  void DieIfDeadly(const Deadly& work, wire::EvaluationSet set);
  bool IsIntact(const Order& order, size_t chunk) const;
  void Take(Duration time) { process_.Sleep(chance_.Between(time / 2, time) * slowness_); }
  Duration ChunkTime() const {
    return traits_.slice_time / static_cast<int64_t>(job_.chunks().size());
  }

  const ModelJob& job_;
  Chance& chance_;
  Network& network_;
  SimulatedProcess& process_;
  const WorkerTraits traits_;
  int64_t slowness_ = 1;
  Client* client_ = nullptr;  // null before and after the run
  OrderFollower* follower_ = nullptr;
};

}  // namespace muster::testing
