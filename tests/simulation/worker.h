// A simulated worker process: the real client (worker/client), and instead of the trainer the same
// sequence of calls. It waits for weights layer by layer, reports each slice's loss before its
// gradients, pushes chunk by chunk, and does urgent work where the trainer can. Computing takes
// time, in which weights may be overwritten. The results are then wrong.
#pragma once

#include <functional>
#include <optional>

#include "tests/protocol/model_job.h"
#include "tests/simulation/network.h"
#include "tests/simulation/scenario.h"
#include "tests/simulation/scheduler.h"
#include "worker/client/client.h"

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

class SimulatedWorker {
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
  struct Superseded {};
  struct WasReset {};

  void Do(const Order& order);
  void DoUrgent();
  void Compute(const Order& order, const OrderPart& part);
  void Evaluate(const Order& order);
  // Waits for the weights and reads them. Returns whether they are correct.
  bool Forward(const Order& order);
  bool ForwardOnce(const Order& order);
  void AwaitAverage(const Order& order);
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
};

}  // namespace muster::testing
