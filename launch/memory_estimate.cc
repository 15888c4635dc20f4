#include "launch/memory_estimate.h"

#include <algorithm>

#include "common/slices.h"
#include "common/wire_type.h"

namespace muster {
namespace {

constexpr double kFloatBytes = 4;

double ArenaBytes(const Graph& graph) {
  return kFloatBytes * static_cast<double>(graph.arena_floats());
}

// AUTO shares memory where it can, which on one host is always, but for old kernels.
bool SharesMemory(const config::Config& config) {
  if (WireTypeOf(config.cluster()) != wire::FP32) return false;
  return config.cluster().transport() == config::Cluster::AUTO ||
         config.cluster().transport() == config::Cluster::LOCAL;
}

std::vector<TreeNode> PartsOf(const config::Config& config, uint32_t rank) {
  const int64_t slices = config.run().slices();
  return Decompose(EvenPart(slices, config.cluster().workers(), rank), slices);
}

}  // namespace

int OptimizerState(const config::Optimizer& optimizer) {
  switch (optimizer.type()) {
    case config::Optimizer::SGD:
      return 0;
    case config::Optimizer::MOMENTUM:
    case config::Optimizer::NESTEROV:
      return 1;
    case config::Optimizer::ADAM:
    case config::Optimizer::ADAMW:
      return 2;
    case config::Optimizer::RMSPROP:
      return optimizer.has_momentum() && optimizer.momentum() > 0 ? 2 : 1;
  }
  return 0;
}

std::vector<MemoryRow> ServerMemory(const config::Config& config, const Graph& graph) {
  const double arena = ArenaBytes(graph);
  std::vector<MemoryRow> rows{{"weights, two planes", 2 * arena}};
  if (const int arrays = OptimizerState(config.optimizer()); arrays > 0) {
    rows.push_back({"optimizer state", arrays * arena});
  }
  if (config.optimizer().has_ema_decay()) rows.push_back({"moving average", arena});
  if (config.optimizer().clip_norm() > 0 || config.run().on_nonfinite() == config::Run::SKIP_STEP) {
    rows.push_back({"averaged gradient, of a two-phase step", arena});
  }
  const double wire = BytesOf(WireTypeOf(config.cluster())) / kFloatBytes;  // of an arena
  if (wire < 1) {
    rows.push_back(
        {"the same in 16 bits", (config.optimizer().has_ema_decay() ? 3 : 2) * wire * arena});
  }
  if (!SharesMemory(config)) {
    double parts = 0;
    for (uint32_t rank = 0; rank < config.cluster().workers(); ++rank) {
      parts += static_cast<double>(PartsOf(config, rank).size());
    }
    rows.push_back({"gradients received, at most", parts * wire * arena});
  }
  return rows;
}

std::vector<MemoryRow> WorkerMemory(const config::Config& config, const Graph& graph, uint32_t rank,
                                    int64_t train_samples, int64_t test_samples) {
  const double arena = ArenaBytes(graph);
  const std::vector<TreeNode> parts = PartsOf(config, rank);
  uint32_t deepest = 0;
  for (const TreeNode& part : parts) deepest = std::max(deepest, part.level);
  std::vector<MemoryRow> rows;
  if (!SharesMemory(config)) rows.push_back({"weights, two planes", 2 * arena});
  rows.push_back({"gradients to push", static_cast<double>(parts.size()) * arena});
  const double wire = BytesOf(WireTypeOf(config.cluster())) / kFloatBytes;
  if (wire < 1) {
    rows.push_back({"the same in 16 bits", static_cast<double>(parts.size()) * wire * arena});
  }
  if (deepest > 0) rows.push_back({"accumulated gradients", deepest * arena});

  int64_t batch = ResolveBatch(config).global_batch;
  if (train_samples >= 0) batch = std::min(batch, train_samples);
  const int64_t slices = config.run().slices();
  const double slice = static_cast<double>((batch + slices - 1) / slices);
  double block = config.evaluation().batch();
  if (test_samples >= 0) block = std::min(block, static_cast<double>(test_samples));
  double all = 0, largest = 0;
  for (const Layer& layer : graph.layers()) {
    const double bytes = kFloatBytes * static_cast<double>(layer.output_shape.elements());
    if (layer.kind != "flatten") all += bytes;
    largest = std::max(largest, bytes);
  }
  rows.push_back({"activations of a slice", slice * (all + 2 * largest)});
  rows.push_back({"activations of an evaluation", block * 2 * largest});
  const double sample = kFloatBytes * static_cast<double>(graph.input_shape().elements());
  const double ring = 1 + config.data().prefetch_batches();
  rows.push_back({"batches made ahead", ring * slice * sample});
  rows.push_back({"the same in evaluations", ring * block * sample});
  if (config.data().format() == config::Data::MNIST && train_samples >= 0) {
    rows.push_back(
        {"images of the data set", static_cast<double>(train_samples + test_samples) *
                                       static_cast<double>(StoredShape(config.data()).elements())});
  }
  return rows;
}

}  // namespace muster
