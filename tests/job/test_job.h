// A server in a thread of the test, and clients to join it: the distributed core without networks.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/graph/graph.h"
#include "common/plan/chunks.h"
#include "proto/config.pb.h"
#include "ps/run/server.h"
#include "tests/ps/tree_sum_reference.h"
#include "worker/client/client.h"

namespace muster::testing {

// A small network of four variables in several chunks, `workers` workers, `slices` slices, SGD
// with rate 1 from weights of zero: so W(v + 1) = W(v) - (sum of the gradients).
config::Config SmallConfig(uint32_t workers, uint32_t slices);

// The token of this process's jobs: another test's server on this host has another one.
const std::string& TestToken();

// What a well-behaved worker of a job on `endpoint` presents.
ClientOptions WorkerOptions(const config::Config& config, const std::string& endpoint,
                            uint32_t rank, int64_t test_samples = 0);

class TestJob {
 public:
  // The server uses what `wrap` makes of its link. With a run.dir that holds checkpoints it goes on
  // from the newest one.
  using Wrap = std::function<std::unique_ptr<ServerLink>(std::unique_ptr<ServerLink>)>;
  explicit TestJob(config::Config config, const std::string& transport = "ipc",
                   const Wrap& wrap = {});
  ~TestJob();

  const config::Config& config() const { return config_; }
  const Graph& graph() const { return graph_; }
  const std::string& endpoint() const { return endpoint_; }
  const std::string& token() const { return token_; }

  ClientOptions OptionsFor(uint32_t rank) const {
    return WorkerOptions(config_, endpoint_, rank, test_samples);
  }
  std::unique_ptr<Client> Join(uint32_t rank) const;

  // Waits for the server's end. Rethrows what it threw.
  ServerResult Finish();
  // What the server threw; "" if it completed.
  std::string FinishError(ExitCode* code = nullptr);

  // W(v) as seen by rank 0 during the last RunWorkers.
  static constexpr int64_t kSamples = 40;
  int64_t test_samples = 0;

 private:
  const config::Config config_;
  const Graph graph_;
  const std::string token_;
  std::string endpoint_;
  std::unique_ptr<Recorder> recorder_;
  std::future<ServerResult> result_;
};

// The gradient of element `i` of the arena in one slice.
using SliceGradient = std::function<float(int64_t step, int64_t slice, size_t i)>;

// A gradient whose sums depend on their order in the last bits.
float Rough(int64_t step, int64_t slice, size_t i);

struct WorkerBehaviour {
  SliceGradient gradient;
  // In which order the chunks are pushed; default: last to first.
  std::function<std::vector<size_t>(size_t chunks)> chunk_order;
  // The loss of a slice; default: 1.
  std::function<double(int64_t step, int64_t slice)> loss;
  // Called with each order to train.
  std::function<void(const Order& order)> on_train;
  // How many of a block of the test set are right, at most 20; default: 1.
  std::function<int64_t(int64_t version, int64_t block)> correct;
  // Called before the losses of a step are reported.
  std::function<void(int64_t step)> before_step;
  // Called by rank 0 with the moving average of W(version), before it is evaluated.
  std::function<void(int64_t version, std::span<const float> average)> on_average;
  std::string convolutions = {};  // for Ready
};

// Runs one worker's part to the end: closed-form gradients, added locally in tree order. Returns
// the weights it saw last.
std::vector<float> RunWorker(Client& client, const WorkerBehaviour& behaviour, size_t arena_floats,
                             uint32_t rank = 0);

// Runs all workers of the job in threads; the weights that rank 0 saw last.
std::vector<float> RunWorkers(TestJob& job, const WorkerBehaviour& behaviour);

}  // namespace muster::testing
