#include "worker/trainer/trainer.h"

#include <algorithm>
#include <set>

#include "common/base/log.h"
#include "common/trace/trace.h"
#include "worker/nn/plan_tower.h"
#include "worker/trainer/sample_images.h"

namespace muster {
namespace {

double Milliseconds(std::chrono::steady_clock::duration d) {
  return std::chrono::duration<double, std::milli>(d).count();
}

int64_t BlockCount(int64_t samples, int64_t block_size) {
  return (samples + block_size - 1) / block_size;
}

// A part of level n is added up on n levels beside the gradient buffer.
size_t DeepestLevel(const std::vector<TreeNode>& parts) {
  uint32_t deepest = 0;
  for (const TreeNode& part : parts) deepest = std::max(deepest, part.level);
  return deepest;
}

}  // namespace

Trainer::Trainer(const config::Config& config, const Graph& graph, const Datasets& data,
                 Backend& backend, Client& client)
    : config_(config),
      graph_(graph),
      data_(data),
      backend_(backend),
      client_(client),
      tower_(graph, backend, config.run().seed()),
      completions_(backend),
      weights_(backend, client.chunks()),
      gradients_(backend, graph.arena_floats(), DeepestLevel(client.parts()),
                 ElementTypeOf(client.wire_type())),
      input_copied_(backend.MakeEvent()),
      results_copied_(backend.MakeEvent()),
      reads_(graph.layers().size()),
      finishes_(graph.layers().size()) {
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
  for (size_t part = 0; part < client.parts().size(); ++part) {
    gradients_.UseSlot(client.GradientBuffer(part));
  }
  for (const int64_t next : {0, 1}) weights_.Use(client.Weights(client.first_step() + next));
  PlanTower(client.plan(), client.slices(), data.test->size(), config.evaluation().batch(), tower_);
  tower_.Allocate();
  TrainPipelineOptions options;
  options.plan = client.plan();
  options.slices = client.slices();
  options.first_step = client.first_step();
  options.seed = config.run().seed();
  options.data = config.data();
  pipeline_ = MakeTrainPipeline(*data.train, options);
}

// Before the memory goes that the device may be working on.
Trainer::~Trainer() { backend_.Drain(); }

void Trainer::Run() {
  client_.ReportReady();
  for (;;) {
    const Clock::time_point begin = Clock::now();
    const Order order = [this] {
      const trace::Span span("wait", "order");
      return client_.NextOrder();
    }();
    switch (order.kind) {
      case Order::Kind::kTrain:
        first_weights_seen_ = false;
        BookWait(begin);
        TrainStep(order);
        break;
      case Order::Kind::kEvaluate:
        Evaluate(order);
        break;
      case Order::Kind::kStop:
        if (order.completed) return;
        throw Error(ExitCode::kPeerFailed, "the server stopped the run: {}", order.reason);
    }
  }
}

void Trainer::TrainStep(const Order& order) {
  trace::AtStep(order.version);
  const trace::Span span("step");
  order_ = order;
  times_.set_step(order.version);
  sums_.clear();
  for (part_ = 0; part_ < client_.parts().size(); ++part_) {
    streamed_ = false;
    gradients_.UseSlot(client_.GradientBuffer(part_));
    const bool any = Accumulate(client_.parts()[part_], 0, {}, true);
    if (!any) {
      client_.PushEmpty(order.version, part_);
    } else if (!streamed_) {
      for (size_t c = 0; c < client_.chunks().size(); ++c) CopyOutAndPush(c);
    }
  }
  const Clock::time_point queued = Clock::now();
  completions_.RunAll(StepLimit());
  BookCompute(queued);
  client_.ReportTimes(times_);
  times_.Clear();
}

bool Trainer::Accumulate(const TreeNode& node, size_t level, const std::vector<size_t>& pending,
                         bool last) {
  if (node.level == 0) return ComputeSlice(node.index, level, pending, last);
  const TreeNode left{node.level - 1, 2 * node.index}, right{node.level - 1, 2 * node.index + 1};
  if (Covers(right, client_.plan().slices).empty()) return Accumulate(left, level, pending, last);
  if (!Accumulate(left, level, {}, false)) {
    // Nothing to add to: the right half is the sum.
    return Accumulate(right, level, pending, last);
  }
  std::vector<size_t> waiting{level};
  waiting.insert(waiting.end(), pending.begin(), pending.end());
  const bool right_has_samples = Accumulate(right, level + 1, waiting, last);
  if (right_has_samples && !(last && streamed_)) {
    const trace::Span span("add", "slices");
    gradients_.AddNextTo(level, 0, graph_.arena_floats());
  }
  return true;
}

bool Trainer::ComputeSlice(int64_t slice, size_t level, const std::vector<size_t>& pending,
                           bool last) {
  const trace::Span span("slice", {}, {.slice = static_cast<int32_t>(slice)});
  const Clock::time_point begin = Clock::now();
  // The pipeline makes a new batch where the last one was.
  AwaitDevice(*input_copied_, StepLimit());
  const PreparedBatch& batch = pipeline_->Next(StepLimit());
  MUSTER_CHECK(batch.step == order_.version && batch.index == slice);
  times_.set_input_ms(times_.input_ms() + Milliseconds(Clock::now() - begin));
  if (batch.count == 0) {
    // Orders come ahead of time: the step begins only when all its weights are there.
    for (size_t c = 0; c < client_.chunks().size(); ++c) client_.AwaitChunk(order_.version, c);
    client_.ReportLoss(order_.version, slice, 0, 0, 0);
    return false;
  }
  waited_ms_ = pushed_ms_ = 0;
  weights_.Use(client_.Weights(order_.version));
  LossSums& sums = sums_.emplace_back();  // stays where it is until the next step
  const Clock::time_point forward = Clock::now();
  tower_.Forward(
      {.count = batch.count,
       .images = batch.images,
       .labels = batch.labels,
       .sample_ids = batch.sample_ids,
       .epoch = batch.epoch},
      Mode::kTraining, weights_.floats(), order_.version, [this](int layer) { AwaitLayer(layer); },
      sums);
  backend_.Record(Queue::kCopyIn, *input_copied_);
  const Clock::time_point loss = Clock::now();
  // Gradients follow on the same queue: the server has a slice's loss before them.
  completions_.Then(Queue::kCopyOut, [this, slice, count = batch.count, &sums] {
    client_.ReportLoss(order_.version, slice, count, sums.loss, sums.correct);
  });
  pushed_ms_ += Milliseconds(Clock::now() - loss);
  // Gradients are those of the mean over the whole batch: workers and server only ever add.
  const float scale = 1.0f / static_cast<float>(order_.samples);
  tower_.Backward(scale, weights_.floats(), gradients_.Level(level), [&](int layer) {
    if (last) LayerDone(layer, pending);
  });
  BookCompute(forward);
  // A gradient that is added here is what would have come of it at the server.
  if (!last) gradients_.Round(level, 0, graph_.arena_floats());
  if (last) streamed_ = true;
  return true;
}

void Trainer::BookCompute(Clock::time_point begin) {
  times_.set_compute_ms(times_.compute_ms() + Milliseconds(Clock::now() - begin) - waited_ms_ -
                        pushed_ms_);
  times_.set_push_ms(times_.push_ms() + pushed_ms_);
  waited_ms_ = pushed_ms_ = 0;
}

double Trainer::StepLimit() const {
  const config::Deadlines& limits = config_.deadlines();
  const bool first = order_.version == client_.first_step();  // with a cold disk
  return first ? limits.first_step_s() : limits.step_s();
}

void Trainer::LayerDone(int layer, const std::vector<size_t>& pending) {
  const Clock::time_point begin = Clock::now();
  for (const size_t chunk : finishes_[static_cast<size_t>(layer)]) AddAndPush(chunk, pending);
  completions_.RunDone();
  pushed_ms_ += Milliseconds(Clock::now() - begin);
}

// The rightmost slice was written one level below the innermost pending sum; the sums are folded
// from there to level 0, which is the gradient buffer.
void Trainer::AddAndPush(size_t chunk, const std::vector<size_t>& pending) {
  const ChunkRange& range = client_.chunks()[chunk];
  if (!pending.empty()) gradients_.Round(pending.front() + 1, range.begin, range.end);
  for (const size_t level : pending) {
    const trace::Span span("add", {}, {.chunk = static_cast<int32_t>(chunk)});
    gradients_.AddNextTo(level, range.begin, range.end);
  }
  CopyOutAndPush(chunk);
}

void Trainer::CopyOutAndPush(size_t chunk) {
  gradients_.CopyOut(client_.chunks()[chunk].begin, client_.chunks()[chunk].end);
  completions_.Then(Queue::kCopyOut, [this, chunk, part = part_] {
    client_.PushChunk(order_.version, part, chunk);
  });
}

void Trainer::AwaitLayer(int layer) {
  const Clock::time_point begin = Clock::now();
  for (const size_t chunk : reads_[static_cast<size_t>(layer)]) {
    client_.AwaitChunk(order_.version, chunk);
    weights_.Bring(chunk, order_.version);
  }
  waited_ms_ += Milliseconds(Clock::now() - begin);
  if (order_.kind != Order::Kind::kTrain) return;
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

void Trainer::Evaluate(const Order& order) {
  trace::AtStep(order.version);
  const trace::Span span("evaluate");
  order_ = order;
  const auto blocks =
      MakeEvaluationPipeline(*data_.test, config_.data(), order.block_size, order.blocks);
  const DrainAtExit drain{backend_};  // before the pipeline's memory goes
  MUSTER_CHECK(order.blocks.end <= BlockCount(data_.test->size(), order.block_size));
  // Layouts derived from W(version) are not those of its average: a number that no version has.
  const int64_t contents = order.average ? -1 - order.version : order.version;
  if (order.average) {
    for (size_t c = 0; c < client_.chunks().size(); ++c) client_.AwaitAverage(order.version, c);
    weights_.Use(client_.Average());  // which has its place from the first chunk on
    for (size_t c = 0; c < client_.chunks().size(); ++c) weights_.Bring(c, contents);
  } else {
    weights_.Use(client_.Weights(order.version));
  }
  const auto await = [this, &order](int layer) {
    if (!order.average) AwaitLayer(layer);
  };
  const bool predicts = order.predictions || order.images > 0;
  predictions_.resize(predicts ? static_cast<size_t>(order.block_size) : size_t{0});
  sums_.assign(1, {});
  for (int64_t block = order.blocks.begin; block < order.blocks.end; ++block) {
    const PreparedBatch& batch = blocks->Next(config_.deadlines().progress_s());
    LossSums& sums = sums_[0];
    tower_.Forward({.count = batch.count,
                    .images = batch.images,
                    .labels = batch.labels,
                    .sample_ids = batch.sample_ids,
                    .epoch = 0,
                    .predictions = predicts ? predictions_.data() : nullptr},
                   Mode::kInference, weights_.floats(), contents, await, sums);
    backend_.Record(Queue::kCopyOut, *results_copied_);
    AwaitDevice(*results_copied_, config_.deadlines().progress_s());
    wire::EvaluatedBlock result;
    result.set_version(order.version);
    result.set_block(static_cast<uint32_t>(block));
    result.set_samples(batch.count);
    result.set_loss(sums.loss);
    result.set_correct(sums.correct);
    result.set_correct_top5(sums.correct_top5);
    if (order.predictions) {
      const auto count = static_cast<size_t>(batch.count);
      for (const int32_t label : std::span(batch.labels, count)) {
        result.add_label(static_cast<uint32_t>(label));
      }
      for (const int32_t predicted : std::span(predictions_).first(count)) {
        result.add_predicted(static_cast<uint32_t>(predicted));
      }
    }
    if (block == 0 && order.images > 0) {
      const auto count = static_cast<size_t>(std::min<int64_t>(order.images, batch.count));
      AddSampleImages(*data_.test, std::span(predictions_).first(count), result);
    }
    client_.ReportEvaluated(result);
  }
}

}  // namespace muster
