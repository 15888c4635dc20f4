#include "worker/trainer/trainer.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "common/base/log.h"
#include "common/config/data_format.h"
#include "common/trace/trace.h"
#include "worker/nn/plan_tower.h"

namespace muster {
namespace {

LayerChunks ChunksByLayer(const Graph& graph, const std::vector<ChunkRange>& chunks) {
  LayerChunks result(graph.layers().size());
  for (size_t c = 0; c < chunks.size(); ++c) {
    const ChunkRange& chunk = chunks[c];
    std::set<int> layers;
    for (const Variable& variable : graph.variables()) {
      if (variable.offset < chunk.end && variable.offset + variable.count > chunk.begin) {
        layers.insert(variable.layer);
      }
    }
    // A chunk that holds only padding may belong to any layer.
    const int first = layers.empty() ? graph.variables().back().layer : *layers.begin();
    result[static_cast<size_t>(first)].push_back(c);
  }
  return result;
}

HookLayers LayersWith(const LayerChunks& chunks) {
  HookLayers layers;
  for (const auto& of_layer : chunks) layers.push_back(!of_layer.empty());
  return layers;
}

}  // namespace

Trainer::Trainer(const config::Config& config, const Graph& graph, const Datasets& data,
                 Backend& backend, Client& client)
    : config_(config),
      graph_(graph),
      data_(data),
      backend_(backend),
      client_(client),
      follower_(client, *this),
      layer_chunks_(ChunksByLayer(graph, client.chunks())),
      tower_(graph, backend, config.run().seed(), ClassWeights(config.data()),
             config.evaluation().flip(), LayersWith(layer_chunks_)),
      completions_(backend),
      weights_(backend, client.chunks(), client.link().shares_memory()),
      gradients_(backend, graph.arena_floats(), ElementTypeOf(client.terms().wire_type)),
      stays_in_gpu_(client.terms().adds_in_gpus && !backend.shares_host_memory() &&
                    client.guard() == nullptr),
      guard_(backend, client.guard(), graph.arena_floats()),
      input_copied_(backend.MakeEvent()),
      results_copied_(backend.MakeEvent()),
      orders_(MakeEpochOrders(*data.train, config.run().seed())),
      report_(backend.pci_bus_id()) {
  // Make everything before the first step.
  share_.nodes = client.terms().nodes;
  share_.next_step = client.terms().first_step;
  size_t buffer = 0;
  for (const TreeNode& node : share_.nodes) {
    gradients_.UseSlot(client.GradientBuffer(buffer++));
    gradients_.MakeLevels(node.level);
  }
  for (const int64_t version : {0, 1}) weights_.Use(client.Weights(version));
  PlanTower(client.plan(), {SizeOf(data.test), SizeOf(data.validation)},
            config.evaluation().batch(), tower_);
  tower_.Allocate();
  BringImages();
  share_.batches = MakeBatches(share_.next_step, client.plan().total_steps, share_.nodes);
  report_.SetDeviceMemory(backend_.memory_use().held);
  if (stays_in_gpu_) LogInfo("gradients stay in the GPU: the relay of this host adds them there");
}

// Called last, because the images get a share of the remaining device memory.
void Trainer::BringImages() {
  size_t left = backend_.memory_use().available;
  if (config_.evaluation().use_ema()) {  // allocated by the first evaluation
    left -= std::min(left, DeviceView::BytesFor(backend_, graph_.arena_floats()));
  }
  const LargestBatches largest =
      LargestBatchesOf(client_.plan(), share_.next_step,
                       {.test = SizeOf(data_.test), .validation = SizeOf(data_.validation)},
                       config_.evaluation().batch());
  images_ = std::make_unique<DeviceImages>(config_, data_, backend_, largest, left);
  images_->Upload();
  tower_.UseImages(Mode::kTraining, images_->train());
}

// Drains the queues before memory that the device may be using is freed.
Trainer::~Trainer() { backend_.Drain(); }

void Trainer::Run() {
  const std::string convolutions = backend_.Convolutions();
  if (!convolutions.empty()) LogInfo("{}", convolutions);
  client_.ReportReady(convolutions);
  const Order stop = follower_.Run();
  if (!stop.completed) {
    throw Error(ExitCode::kPeerFailed, "the server stopped the run: {}", stop.reason);
  }
}

void Trainer::DropAll() {
  backend_.Drain();
  completions_.Drop();
  share_.batches.reset();
  work_ = {};
  report_.Drop();
}

TowerInput Trainer::InputOf(const PreparedBatch& batch) {
  return {.count = batch.count,
          .images = batch.images,
          .pixels = batch.pixels,
          .scale = batch.scale,
          .labels = batch.labels,
          .sample_ids = batch.sample_ids,
          .epoch = batch.epoch,
          .key = {batch.step, batch.index},
          .share = batch.share};
}

void Trainer::StageNext(BatchPipeline& batches, Mode mode) {
  const PreparedBatch* const next = batches.Peek();
  if (next == nullptr) return;
  tower_.Stage(InputOf(*next), mode);
  backend_.Record(Queue::kCopyIn, *input_copied_);
}

void Trainer::AwaitLayer(int layer) {
  const Clock::time_point begin = Clock::now();
  for (const size_t chunk : layer_chunks_[static_cast<size_t>(layer)]) {
    follower_.AwaitChunk(work_.order, chunk);
    weights_.Bring(chunk, work_.order.version);
  }
  report_.AddWaited(begin);
  if (work_.order.kind != Order::Kind::kTrain || work_.order.taken_over) return;
  report_.BookWait(begin, client_.HandedOverAt());
  report_.SawWeights();
}

}  // namespace muster
