#include "cli/job/server_memory.h"

#include "common/config/job_size.h"
#include "common/config/update_settings.h"
#include "common/link/wire_type.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

constexpr double kFloatBytes = 4;

double ArenaBytes(const Graph& graph) {
  return kFloatBytes * static_cast<double>(graph.arena_floats());
}

}  // namespace

std::vector<MemoryRow> ServerMemory(const config::Config& config, const Graph& graph) {
  const double arena = ArenaBytes(graph);
  std::vector<MemoryRow> rows{{"weights, two buffers", 2 * arena}};
  if (const int arrays = TraitsOf(config.optimizer()).state_arrays; arrays > 0) {
    // A moving average has to be whole whenever the run ends, and the state lies as it does.
    rows.push_back(
        {"optimizer state", (config.optimizer().has_ema_decay() ? 2 : 1) * arrays * arena});
  }
  if (config.optimizer().has_ema_decay())
    rows.push_back({"moving average, two buffers, and one to evaluate", 3 * arena});
  if (const config::Evaluation& evaluation = config.evaluation();
      !evaluation.skip_final() || evaluation.every_epochs() > 0 || evaluation.every_steps() > 0) {
    // One copy is being written when better ones come.
    rows.push_back({"best weights, until they are written", 2 * arena});
  }
  if (config.optimizer().clip_norm() > 0 || config.run().on_nonfinite() == config::Run::SKIP_STEP) {
    rows.push_back({"averaged gradient, of a two-phase step", arena});
  }
  const double wire = BytesOf(WireTypeOf(config.cluster())) / kFloatBytes;  // of an arena
  if (wire < 1) {
    rows.push_back(
        {"the same in 16 bits", (config.optimizer().has_ema_decay() ? 3 : 2) * wire * arena});
  }
  if (config.checkpoint().keep_last() > 0) {
    const int arrays = 1 + TraitsOf(config.optimizer()).state_arrays +
                       (config.optimizer().has_ema_decay() ? 1 : 0);
    rows.push_back({"copy for checkpoints", arrays * arena});
  }
  double parts = 0;
  for (const auto& nodes : FirstAssignment(config).nodes)
    parts += static_cast<double>(nodes.size());
  rows.push_back({SharesMemory(config) ? "gradients of the workers" : "gradients received, at most",
                  parts * wire * arena});
  return rows;
}

}  // namespace muster
