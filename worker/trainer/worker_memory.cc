#include "worker/trainer/worker_memory.h"

#include <algorithm>
#include <utility>

#include "common/config/config.h"
#include "common/config/data_format.h"
#include "common/config/job_size.h"
#include "common/link/wire_type.h"
#include "common/plan/chunks.h"
#include "common/plan/step_plan.h"
#include "worker/client/wire_buffers.h"
#include "worker/data/pipeline.h"
#include "worker/nn/device_view.h"
#include "worker/nn/plan_tower.h"
#include "worker/trainer/device_images.h"

namespace muster {
namespace {

using Holder = MemoryRow::Holder;

void AddWeightBuffers(const config::Config& config, double arena, std::vector<MemoryRow>& rows) {
  const bool shared = SharesMemory(config.cluster());
  rows.push_back({shared ? "weights, two buffers (shared)" : "weights, two buffers", 2 * arena,
                  shared ? Holder::kServer : Holder::kProcess});
  if (!config.evaluation().use_ema()) return;
  rows.push_back({shared ? "moving average (shared)" : "moving average", arena,
                  shared ? Holder::kServer : Holder::kProcess});
}

void AddGradients(const config::Config& config, const Graph& graph, double arena, uint32_t rank,
                  bool on_card, std::vector<MemoryRow>& rows) {
  const std::vector<TreeNode> parts = FirstAssignment(config).nodes[rank];
  const double count = static_cast<double>(parts.size());
  const bool shared = SharesMemory(config.cluster());
  rows.push_back({shared ? "gradients to push (shared)" : "gradients to push", count * arena,
                  shared ? Holder::kServer : Holder::kProcess});
  const WireType wire = WireTypeOf(config.cluster());
  if (!shared) {
    // Received messages, before they are copied to a weight buffer. malloc keeps their memory.
    rows.push_back({"received weights (at most)", arena * static_cast<double>(BytesOf(wire)) / 4});
  }
  if (wire != wire::FP32) {
    size_t largest = 0;
    for (const Chunk& chunk : CutChunks(graph.layout(), config.cluster())) {
      largest = std::max(largest, chunk.floats());
    }
    rows.push_back({"16-bit gradients",
                    static_cast<double>(WireBuffers::kCount * largest * sizeof(uint16_t))});
  }
  uint32_t deepest = 0;
  for (const TreeNode& part : parts) deepest = std::max(deepest, part.level);
  if (deepest > 0 && !on_card) rows.push_back({"accumulated gradients", deepest * arena});
}

// Adds the memory of a tower. On a GPU it includes weights and gradients; on the host it does not.
void AddTower(const config::Config& config, const Graph& graph, uint32_t rank,
              const Backend& backend, const Tower& tower, std::vector<MemoryRow>& rows) {
  const bool on_card = !backend.shares_host_memory();
  const Holder holder = on_card ? Holder::kCard : Holder::kProcess;
  if (on_card) {
    // A view of each host buffer (DeviceWeights, DeviceGradients), and one array for each further
    // level of sums.
    const auto view = static_cast<double>(DeviceView::BytesFor(backend, graph.arena_floats()));
    rows.push_back({"weights", (config.evaluation().use_ema() ? 3 : 2) * view, holder});
    const std::vector<TreeNode> parts = FirstAssignment(config).nodes[rank];
    uint32_t deepest = 0;
    for (const TreeNode& part : parts) deepest = std::max(deepest, part.level);
    rows.push_back({"gradients", static_cast<double>(parts.size() + deepest) * view, holder});
  }
  const TowerMemory memory = tower.memory();
  rows.push_back({"training: activations, scratch", static_cast<double>(memory.training), holder});
  if (memory.evaluation > 0) {
    rows.push_back(
        {"evaluation: activations, scratch", static_cast<double>(memory.evaluation), holder});
  }
  if (memory.layouts > 0) {
    rows.push_back({"weights in kernel layouts", static_cast<double>(memory.layouts), holder});
  }
  if (on_card) {
    rows.push_back({"library workspace", static_cast<double>(backend.memory_use().held), holder});
  }
}

// Chooses the sets that are stored on the device after everything else has been allocated.
DeviceImages ImagesOn(Backend& backend, const config::Config& config, const StepPlan& plan,
                      const EvaluatedSizes& sizes, const Datasets& data,
                      const std::vector<MemoryRow>& rows) {
  const DeviceMemoryUse use = backend.memory_use();
  const double others = SumOfCard(rows) - static_cast<double>(use.held);
  const double left = std::max(0.0, static_cast<double>(use.available) - others);
  return {config, data, backend, LargestBatchesOf(plan, 0, sizes, config.evaluation().batch()),
          static_cast<size_t>(left)};
}

// Adds the batches that are made ahead, and the data sets.
void AddData(const config::Config& config, const StepPlan& plan, const Range& slices,
             const EvaluatedSizes& sizes, const Datasets& data, const DeviceImages& images,
             uint32_t rank, std::vector<MemoryRow>& rows) {
  const Shape shape = InputShape(config.data());
  const auto depth = static_cast<int>(config.data().prefetch_batches());
  const int64_t batch = std::min(plan.global_batch, plan.train_samples);
  const int64_t slice = (batch + plan.slices - 1) / plan.slices;
  rows.push_back({"batches made ahead",
                  static_cast<double>(PrefetchBytes(plan.total_steps * slices.size(), slice, shape,
                                                    depth, images.train_by()))});
  const int64_t block = config.evaluation().batch();
  // Only one evaluation runs at a time.
  size_t evaluated = 0;
  for (const auto& [samples, by] : {std::pair(sizes.test, images.by(wire::TEST)),
                                    std::pair(sizes.validation, images.by(wire::VALIDATION))}) {
    const int64_t blocks = (samples + block - 1) / block;
    const Range mine = EvenPart(blocks, config.cluster().workers(), rank);
    if (mine.empty()) continue;
    evaluated =
        std::max(evaluated, PrefetchBytes(mine.size(), std::min(block, samples), shape, depth, by));
  }
  if (evaluated > 0) {
    rows.push_back({"evaluation batches", static_cast<double>(evaluated)});
  }
  if (data.train == nullptr) return;
  const bool mapped = data.train->is_mapped();
  size_t bytes = 0;
  for (const auto& set : {data.train, data.test, data.validation}) {
    if (set != nullptr) bytes += set->bytes();
  }
  rows.push_back({mapped ? "images of the data set (files)" : "images of the data set",
                  static_cast<double>(bytes), mapped ? Holder::kHost : Holder::kProcess});
  rows.push_back({"sample orders of two epochs",
                  2.0 * sizeof(int64_t) * static_cast<double>(plan.train_samples)});
}

}  // namespace

std::vector<MemoryRow> WorkerMemory(const config::Config& config, const Graph& graph,
                                    const Datasets& data, uint32_t rank, Backend& backend,
                                    Tower& tower) {
  constexpr int64_t kMany = 1000;  // full batches
  const bool known = data.train != nullptr;
  const StepPlan plan =
      PlanSteps(config, known ? data.train->size() : kMany * ResolveBatch(config).global_batch);
  const int64_t many = kMany * config.cluster().workers() * int64_t{config.evaluation().batch()};
  const EvaluatedSizes sizes{.test = known ? SizeOf(data.test) : many,
                             .validation = SizeOf(data.validation)};
  const Range slices = FirstAssignment(config).SlicesOf(rank).front();
  PlanTower(plan, {sizes.test, sizes.validation}, config.evaluation().batch(), tower);

  std::vector<MemoryRow> rows;
  const double arena = sizeof(float) * static_cast<double>(graph.arena_floats());
  AddWeightBuffers(config, arena, rows);
  AddGradients(config, graph, arena, rank, !backend.shares_host_memory(), rows);
  AddTower(config, graph, rank, backend, tower, rows);
  const DeviceImages images = ImagesOn(backend, config, plan, sizes, data, rows);
  if (images.bytes() > 0) {
    rows.push_back({"images of the data set", static_cast<double>(images.bytes()), Holder::kCard});
  }
  AddData(config, plan, slices, sizes, data, images, rank, rows);
  return rows;
}

}  // namespace muster
