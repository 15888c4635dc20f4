#include "cli/job/memory_check.h"

#include <fmt/core.h>

#include <algorithm>
#include <fstream>

#include "cli/process/held_file.h"
#include "cli/process/json_program.h"
#include "cli/text/units.h"
#include "common/base/error.h"
#include "common/base/json.h"
#include "common/base/resource_limits.h"
#include "common/config/data_format.h"
#include "common/config/job_size.h"
#include "common/config/update_settings.h"
#include "common/link/wire_type.h"
#include "common/plan/memory_rows.h"
#include "proto/config.pb.h"

namespace muster {
namespace {

std::string NeedText(const LeastMemory& needed) {
  if (needed.each_worker == 0) {
    return fmt::format("the server needs at least {}", FormatBytes(needed.server));
  }
  return fmt::format("the job needs at least {}: {} for the server and {} for each of {}",
                     FormatBytes(needed.all()), FormatBytes(needed.server),
                     FormatBytes(needed.each_worker), Plural(needed.workers, "worker"));
}

MemoryRow ParseRow(const nlohmann::json& json) {
  using Holder = MemoryRow::Holder;
  try {
    const auto holder = json.at("holder").get<std::string>();
    return {json.at("what").get<std::string>(), json.at("bytes").get<double>(),
            holder == "server" ? Holder::kServer
            : holder == "host" ? Holder::kHost
            : holder == "card" ? Holder::kCard
                               : Holder::kProcess};
  } catch (const nlohmann::json::exception&) {
    throw Error(ExitCode::kFailure,
                "muster-worker memory: expected what, bytes and holder, got {}: are muster and "
                "muster-worker from the same build?",
                JsonText(json));
  }
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
  // With shared memory, the workers use the server's buffers for weights and gradients.
  if (!SharesMemory(config.cluster())) needed.each_worker += 2 * arena;
  if (HasProgram(config)) return needed;  // only the program knows the rest
  const int64_t slices = config.run().slices(), batch = ResolveBatch(config).global_batch;
  int64_t samples = (batch + slices - 1) / slices;
  if (!NeedsFiles(config.data())) {
    const int64_t train = config.data().synthetic().train_samples();
    samples = std::min(samples, (train + slices - 1) / slices);
    // The sample order of one epoch and, if there is more than one, of the next.
    const StepPlan plan = PlanSteps(config, train);
    const double orders = plan.total_steps > plan.StepsPerEpoch() ? 2 : 1;
    needed.each_worker += orders * sizeof(int64_t) * static_cast<double>(train);
  }
  double elements = 0;
  for (const Layer& layer : graph.layers()) {
    if (layer.traits().keeps_output) elements += static_cast<double>(layer.output_shape.elements());
  }
  // On a GPU, outputs do not use the memory of this machine.
  if (config.worker().backend() == config::Worker::CUDA) return needed;
  const bool halves = config.worker().precision() == config::Worker::BF16;
  needed.each_worker += (halves ? 2 : 4) * elements * static_cast<double>(samples);
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
    return fmt::format("{}; only {} is available now", NeedText(needed),
                       FormatBytes(machine.available));
  }
  throw Error(ExitCode::kUsage,
              "{}, but this machine has {}: choose a smaller network or batch, more slices "
              "(run.slices) or fewer workers; --dry-run lists the memory",
              NeedText(needed), FormatBytes(machine.all));
}

std::vector<MemoryRow> ServerMemory(const config::Config& config, const Graph& graph) {
  const double arena = sizeof(float) * static_cast<double>(graph.arena_floats());
  std::vector<MemoryRow> rows{{"weights, two buffers", 2 * arena}};
  if (const int arrays = TraitsOf(config.optimizer()).state_arrays; arrays > 0) {
    // The moving average must be consistent whenever the run ends, so it has two buffers; the
    // optimizer state has the same layout.
    rows.push_back(
        {"optimizer state", (config.optimizer().has_ema_decay() ? 2 : 1) * arrays * arena});
  }
  if (config.optimizer().has_ema_decay())
    rows.push_back({"moving average, three buffers", 3 * arena});
  if (const config::Evaluation& evaluation = config.evaluation();
      !evaluation.skip_final() || evaluation.every_epochs() > 0 || evaluation.every_steps() > 0) {
    // One copy may still be being written when better weights arrive.
    rows.push_back({"best weights, until written", 2 * arena});
  }
  if (config.optimizer().clip_norm() > 0 || MaySkipSteps(config)) {
    rows.push_back({"averaged gradient (two-phase)", arena});
  }
  const double wire = BytesOf(WireTypeOf(config.cluster())) / double{sizeof(float)};
  if (wire < 1) {
    rows.push_back({"16-bit copies of the weights",
                    (config.optimizer().has_ema_decay() ? 3 : 2) * wire * arena});
  }
  if (config.checkpoint().keep_last() > 0) {
    const int arrays = 1 + TraitsOf(config.optimizer()).state_arrays +
                       (config.optimizer().has_ema_decay() ? 1 : 0);
    rows.push_back({"copy for checkpoints", arrays * arena});
  }
  double parts = 0;
  for (const auto& nodes : FirstAssignment(config).nodes)
    parts += static_cast<double>(nodes.size());
  rows.push_back(
      {SharesMemory(config.cluster()) ? "gradients of the workers" : "gradients received, at most",
       parts * wire * arena});
  return rows;
}

std::vector<MemoryRow> AskWorkerMemory(const std::string& worker_program,
                                       const config::Config& config, uint32_t rank) {
  const HeldFile held = HeldFile::OfText(ConfigText(config));
  const std::vector<std::string> words{"memory", "--config", held.path(), "--rank",
                                       std::to_string(rank)};
  std::vector<MemoryRow> rows;
  for (const auto& json : RunJsonProgram(worker_program, words, config.deadlines().start_s())) {
    rows.push_back(ParseRow(json));
  }
  return rows;
}

}  // namespace muster
