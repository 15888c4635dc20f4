#include "worker/trainer/trainer.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "common/base/log.h"
#include "common/config/data_format.h"
#include "common/trace/trace.h"
#include "worker/nn/plan_tower.h"
#include "worker/trainer/milliseconds.h"

namespace muster {

Trainer::Trainer(const config::Config& config, const Graph& graph, const Datasets& data,
                 Backend& backend, Client& client)
    : config_(config),
      graph_(graph),
      data_(data),
      backend_(backend),
      client_(client),
      tower_(graph, backend, config.run().seed(), ClassWeights(config.data())),
      completions_(backend),
      weights_(backend, client.chunks(), client.weights_are_read_only()),
      gradients_(backend, graph.arena_floats(), ElementTypeOf(client.wire_type())),
      guard_(backend, client.guard(), graph.arena_floats()),
      input_copied_(backend.MakeEvent()),
      results_copied_(backend.MakeEvent()),
      reads_(graph.layers().size()),
      finishes_(graph.layers().size()),
      orders_(MakeEpochOrders(*data.train, config.run().seed())) {
  // Which layers' variables lie in which chunk.
  for (size_t c = 0; c < client.chunks().size(); ++c) {
    const ChunkRange& chunk = client.chunks()[c];
    std::set<int> layers;
    for (const Variable& variable : graph.variables()) {
      if (variable.offset < chunk.end && variable.offset + variable.count > chunk.begin) {
        layers.insert(variable.layer);
      }
    }
    for (const int layer : layers) reads_[static_cast<size_t>(layer)].push_back(c);
    // Backward ends with the first layer. A chunk of padding only goes with any layer.
    const int first = layers.empty() ? graph.variables().back().layer : *layers.begin();
    finishes_[static_cast<size_t>(first)].push_back(c);
  }
  // Everything is made before the first step.
  const WorkShare& share = client.first_share();
  share_ = share.id;
  next_step_ = share.from_step;
  for (size_t arena = 0; arena < share.nodes.size(); ++arena) {
    gradients_.UseSlot(client.GradientBuffer(arena));
    gradients_.MakeLevels(share.nodes[arena].level);
  }
  for (const int64_t version : {0, 1}) weights_.Use(client.Weights(version));
  PlanTower(client.plan(), {SizeOf(data.test), SizeOf(data.validation)},
            config.evaluation().batch(), tower_);
  tower_.Allocate();
  BringImages();
  pipeline_ = MakeBatches(next_step_, client.plan().total_steps, share.nodes);
  gpu_bytes_ = backend_.memory_use().held;
}

// Last of all: they get of what is left of the device's memory.
void Trainer::BringImages() {
  size_t left = backend_.memory_use().available;
  if (config_.evaluation().use_ema()) {  // which comes with the first evaluation
    left -= std::min(left, DeviceView::BytesFor(backend_, graph_.arena_floats()));
  }
  const LargestBatches largest =
      LargestBatchesOf(client_.plan(), next_step_,
                       {.test = SizeOf(data_.test), .validation = SizeOf(data_.validation)},
                       config_.evaluation().batch());
  images_ = std::make_unique<DeviceImages>(config_, data_, backend_, largest, left);
  images_->Upload();
  tower_.UseImages(Mode::kTraining, images_->train());
}

// Before the memory goes that the device may be working on.
Trainer::~Trainer() { backend_.Drain(); }

void Trainer::Run() {
  const std::string convolutions = backend_.Convolutions();
  if (!convolutions.empty()) LogInfo("{}", convolutions);
  client_.ReportReady(convolutions);
  for (;;) {
    const Clock::time_point begin = Clock::now();
    Order order = [this] {
      const trace::Span span("wait", "order");
      return client_.NextOrder();
    }();
    if (order.kind == Order::Kind::kStop) {
      if (order.completed) return;
      throw Error(ExitCode::kPeerFailed, "the server stopped the run: {}", order.reason);
    }
    try {
      switch (order.kind) {
        case Order::Kind::kTrain:
          first_weights_seen_ = false;
          BookWait(begin);
          TrainStep(std::move(order));
          break;
        case Order::Kind::kEvaluate:
          Evaluate(order);
          break;
        case Order::Kind::kRedo:
          Redo(std::move(order));
          break;
        default:
          BeginAnew();
      }
    } catch (const Fenced&) {
      BeginAnew();
    }
  }
}

void Trainer::DoUrgent() {
  while (std::optional<Order> order = client_.NextUrgentOrder()) {
    if (order->kind == Order::Kind::kFence) throw Fenced();
    Redo(std::move(*order));
  }
}

void Trainer::BeginAnew() {
  LogWarning("this worker was late, and others have done its work: it begins anew");
  backend_.Drain();
  completions_.Drop();
  pipeline_.reset();
  work_ = {};
  times_.Clear();
  client_.ReportReady();
}

TowerInput Trainer::InputOf(const PreparedBatch& batch) {
  return {.count = batch.count,
          .images = batch.images,
          .labels = batch.labels,
          .sample_ids = batch.sample_ids,
          .epoch = batch.epoch,
          .key = {batch.step, batch.index},
          .share = batch.share};
}

void Trainer::StageNext(BatchPipeline& batches, Mode mode) {
  const auto by = mode == Mode::kTraining ? images_->train_by() : images_->by(work_.order.set);
  if (by == ImagesBy::kHost) return;
  const PreparedBatch* const next = batches.Peek();
  if (next == nullptr) return;
  tower_.Stage(InputOf(*next), mode);
  backend_.Record(Queue::kCopyIn, *input_copied_);
}

void Trainer::BookCompute(Clock::time_point begin) {
  times_.set_compute_ms(times_.compute_ms() + Milliseconds(Clock::now() - begin) - waited_ms_ -
                        pushed_ms_);
  times_.set_push_ms(times_.push_ms() + pushed_ms_);
  waited_ms_ = pushed_ms_ = 0;
}

void Trainer::AwaitChunk(size_t chunk) {
  const bool redo = work_.order.kind == Order::Kind::kRedo;
  const auto wait = redo ? Client::Wait::kForChunk : Client::Wait::kForUrgent;
  if (!client_.AwaitChunk(work_.order.version, chunk, wait)) throw Superseded();
}

void Trainer::AwaitLayer(int layer) {
  const Clock::time_point begin = Clock::now();
  for (const size_t chunk : reads_[static_cast<size_t>(layer)]) {
    AwaitChunk(chunk);
    weights_.Bring(chunk, work_.order.version);
  }
  waited_ms_ += Milliseconds(Clock::now() - begin);
  if (work_.order.kind != Order::Kind::kTrain) return;
  BookWait(begin);
  first_weights_seen_ = true;
}

// Between steps a worker waits in three stages: until its gradients are handed over (push); until
// the server wants the next step and the first layer's new weights are there, which is when the
// slowest worker's gradient has been added (wait); and until the other layers' weights are there
// (pull).
void Trainer::BookWait(Clock::time_point begin) {
  const Clock::time_point end = Clock::now();
  const Clock::time_point pushed = std::clamp(client_.HandedOverAt(), begin, end);
  times_.set_push_ms(times_.push_ms() + Milliseconds(pushed - begin));
  const double rest = Milliseconds(end - pushed);
  if (first_weights_seen_) {
    times_.set_pull_ms(times_.pull_ms() + rest);
  } else {
    times_.set_wait_ms(times_.wait_ms() + rest);
  }
}

}  // namespace muster
