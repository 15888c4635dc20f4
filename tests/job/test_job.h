// A server in a thread of the test, and clients that join it: the distributed core without
// networks.
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
#include "worker/client/client.h"

namespace muster::testing {

// A small network with four variables in several chunks, `workers` workers, `slices` slices, and
// SGD with rate 1 from weights of zero: W(v + 1) = W(v) - (sum of the gradients).
config::Config SmallConfig(uint32_t workers, uint32_t slices);

// This process's token. Servers of other tests on this host have other ones.
const std::string& TestToken();

// The options of a correct worker of a job on `endpoint`.
ClientOptions WorkerOptions(const config::Config& config, const std::string& endpoint,
                            uint32_t rank, int64_t test_samples = 0);

class TestJob {
 public:
  // The server uses the link that `wrap` returns. If run.dir has checkpoints, it resumes from the
  // newest one.
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

  // Waits for the end of the server. Rethrows its exception.
  ServerResult Finish();
  // The server's error, or "" if it completed.
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

// The gradient of element `i` of the buffer in one slice.
using SliceGradient = std::function<float(int64_t step, int64_t slice, size_t i)>;

// A gradient whose sums depend on the order in their last bits.
float Rough(int64_t step, int64_t slice, size_t i);

// Infinite if it is above the largest number in half precision.
float InRangeOfHalf(float value);

struct WorkerBehaviour {
  SliceGradient gradient;
  // The order in which chunks are pushed. The default is last to first.
  std::function<std::vector<size_t>(size_t chunks)> chunk_order;
  // The loss of a slice. The default is 1.
  std::function<double(int64_t step, int64_t slice)> loss;
  // Called with each order to train.
  std::function<void(const Order& order)> on_train;
  // The number of correct samples in a block of the test set, at most 20. The default is 1.
  std::function<int64_t(int64_t version, int64_t block)> correct;
  // Called before the losses of a step are reported.
  std::function<void(int64_t step)> before_step;
  // Called by rank 0 with the moving average of W(version), before it is evaluated.
  std::function<void(int64_t version, std::span<const float> average)> on_average;
  std::string convolutions = {};  // for Ready
  // Whether scaled gradients above the largest number in half precision become infinite.
  bool largest_half = false;
};

// Runs one worker to the end, with closed-form gradients added locally in tree order. Returns the
// last weights that it saw.
std::vector<float> RunWorker(Client& client, const WorkerBehaviour& behaviour, uint32_t rank = 0);

// Runs all workers of the job in threads. Returns the last weights that rank 0 saw.
std::vector<float> RunWorkers(TestJob& job, const WorkerBehaviour& behaviour);

}  // namespace muster::testing
