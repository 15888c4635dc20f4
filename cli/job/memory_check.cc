#include "cli/job/memory_check.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>

#include "cli/job/server_memory.h"
#include "cli/text/units.h"
#include "common/base/control_group.h"
#include "common/base/error.h"
#include "common/config/data_format.h"
#include "common/config/job_size.h"
#include "common/plan/memory_rows.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

std::string NeedText(const LeastMemory& needed) {
  if (needed.each_worker == 0) {
    return fmt::format("the server needs at least {}", FormatBytes(needed.server));
  }
  return fmt::format("the job needs at least {}: the server {}, each of {} {}",
                     FormatBytes(needed.all()), FormatBytes(needed.server),
                     Plural(needed.workers, "worker"), FormatBytes(needed.each_worker));
}

}  // namespace

MachineMemory ReadMachineMemory() {
  MachineMemory memory;
  std::ifstream file("/proc/meminfo");
  std::string key, unit;
  for (double kibibytes = 0; file >> key >> kibibytes; std::getline(file, unit)) {
    if (key == "MemTotal:" || key == "SwapTotal:") memory.all += 1024 * kibibytes;
    if (key == "MemAvailable:") memory.available = 1024 * kibibytes;
  }
  const ControlGroupLimits limits = ReadControlGroupLimits();
  memory.all = std::min(memory.all, limits.memory);
  memory.available = std::min(memory.available, limits.memory_left);
  return memory;
}

LeastMemory LeastMemoryOf(const config::Config& config, const Graph& graph) {
  const uint32_t workers = config.cluster().workers();
  LeastMemory needed{.workers = static_cast<int>(workers)};
  needed.server = SumOf(ServerMemory(config, graph));
  const double arena = sizeof(float) * static_cast<double>(graph.arena_floats());
  // Over shared memory a worker's weights and gradients are the server's.
  if (!SharesMemory(config)) needed.each_worker += 2 * arena;
  const int64_t slices = config.run().slices(), batch = ResolveBatch(config).global_batch;
  int64_t samples = (batch + slices - 1) / slices;
  if (!NeedsFiles(config.data())) {
    const int64_t train = config.data().synthetic().train_samples();
    samples = std::min(samples, (train + slices - 1) / slices);
    // The order of an epoch and, if the run gets there, of the next one.
    const StepPlan plan = PlanSteps(config, train);
    const double orders = plan.total_steps > plan.StepsPerEpoch() ? 2 : 1;
    needed.each_worker += orders * sizeof(int64_t) * static_cast<double>(train);
  }
  double elements = 0;
  for (const Layer& layer : graph.layers()) {
    if (layer.traits().keeps_output) elements += static_cast<double>(layer.output_shape.elements());
  }
  // On a card they are none of this machine's.
  if (config.worker().backend() == config::Worker::CUDA) return needed;
  needed.each_worker += sizeof(float) * elements * static_cast<double>(samples);
  return needed;
}

LeastMemory WholeMemoryOf(const config::Config& config, const Graph& graph,
                          const std::vector<MemoryRow>& worker) {
  LeastMemory needed{.server = SumOf(ServerMemory(config, graph)),
                     .workers = static_cast<int>(config.cluster().workers())};
  for (const MemoryRow& row : worker) {
    if (row.holder == MemoryRow::Holder::kProcess) needed.each_worker += row.bytes;
  }
  return needed;
}

std::string CheckMemory(const LeastMemory& needed, const MachineMemory& machine) {
  if (needed.all() <= machine.available) return "";
  if (needed.all() <= machine.all) {
    return fmt::format("{}; {} are available now", NeedText(needed),
                       FormatBytes(machine.available));
  }
  throw Error(ExitCode::kUsage,
              "{}, and this machine has {}: choose a smaller network or batch, more slices "
              "(run.slices), or fewer workers; --dry-run says what takes how much",
              NeedText(needed), FormatBytes(machine.all));
}

}  // namespace muster
