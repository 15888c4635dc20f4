#include "worker/trainer/trainer.h"

#include <algorithm>
#include <set>

#include "common/base/log.h"
#include "common/trace/trace.h"
#include "worker/nn/plan_tower.h"

namespace muster {
namespace {

double Milliseconds(std::chrono::steady_clock::duration d) {
  return std::chrono::duration<double, std::milli>(d).count();
}

int64_t BlockCount(int64_t samples, int64_t block_size) {
  return (samples + block_size - 1) / block_size;
}

}  // namespace

Trainer::Trainer(const config::Config& config, const Graph& graph, const Datasets& data,
                 Backend& backend, Client& client)
    : config_(config),
      graph_(graph),
      data_(data),
      client_(client),
      tower_(graph, backend, config.run().seed()),
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
  uint32_t deepest = 0;
  for (const TreeNode& node : client.parts()) deepest = std::max(deepest, node.level);
  for (uint32_t level = 1; level <= deepest; ++level)
    accumulators_.emplace_back(graph.arena_floats());
  // Everything is made before the first step.
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
  for (part_ = 0; part_ < client_.parts().size(); ++part_) {
    streamed_ = false;
    const bool any = Accumulate(client_.parts()[part_], 0, {}, true);
    if (!any) {
      client_.PushEmpty(order.version, part_);
    } else if (!streamed_) {
      for (size_t c = 0; c < client_.chunks().size(); ++c)
        client_.PushChunk(order.version, part_, c);
    }
  }
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
    const std::span<float> sum = Buffer(level), addend = Buffer(level + 1);
    const trace::Span span("add", "slices");
    AddOnWire(client_.wire_type(), sum.data(), addend.data(), sum.data(), sum.size());
  }
  return true;
}

bool Trainer::ComputeSlice(int64_t slice, size_t level, const std::vector<size_t>& pending,
                           bool last) {
  const trace::Span span("slice", {}, {.slice = static_cast<int32_t>(slice)});
  const Clock::time_point begin = Clock::now();
  const config::Deadlines& limits = config_.deadlines();
  const bool first = order_.version == client_.first_step();  // with a cold disk
  const PreparedBatch& batch = pipeline_->Next(first ? limits.first_step_s() : limits.step_s());
  MUSTER_CHECK(batch.step == order_.version && batch.index == slice);
  times_.set_input_ms(times_.input_ms() + Milliseconds(Clock::now() - begin));
  if (batch.count == 0) {
    // Orders come ahead of time: the step begins only when all its weights are there.
    for (size_t c = 0; c < client_.chunks().size(); ++c) client_.AwaitChunk(order_.version, c);
    client_.ReportLoss(order_.version, slice, 0, 0, 0);
    return false;
  }
  waited_ms_ = pushed_ms_ = 0;
  const std::span<const float> weights = client_.Weights(order_.version);
  const Clock::time_point forward = Clock::now();
  const LossSums sums = tower_.Forward({.count = batch.count,
                                        .images = batch.images,
                                        .labels = batch.labels,
                                        .sample_ids = batch.sample_ids,
                                        .epoch = batch.epoch},
                                       Mode::kTraining, weights, order_.version,
                                       [this](int layer) { AwaitLayer(layer); });
  const Clock::time_point loss = Clock::now();
  client_.ReportLoss(order_.version, slice, batch.count, sums.loss, sums.correct);
  pushed_ms_ += Milliseconds(Clock::now() - loss);
  // Gradients are those of the mean over the whole batch: workers and server only ever add.
  const float scale = 1.0f / static_cast<float>(order_.samples);
  tower_.Backward(scale, weights, Buffer(level), [&](int layer) {
    if (last) LayerDone(layer, pending);
  });
  times_.set_compute_ms(times_.compute_ms() + Milliseconds(Clock::now() - forward) - waited_ms_ -
                        pushed_ms_);
  times_.set_push_ms(times_.push_ms() + pushed_ms_);
  // A gradient that is added here is what would have come of it at the server.
  if (!last) RoundToWire(client_.wire_type(), Buffer(level));
  if (last) streamed_ = true;
  return true;
}

std::span<float> Trainer::Buffer(size_t level) {
  return level == 0 ? client_.Slot(part_) : accumulators_[level - 1].floats();
}

void Trainer::LayerDone(int layer, const std::vector<size_t>& pending) {
  const Clock::time_point begin = Clock::now();
  for (const size_t chunk : finishes_[static_cast<size_t>(layer)]) AddAndPush(chunk, pending);
  pushed_ms_ += Milliseconds(Clock::now() - begin);
}

// The rightmost slice was written one level below the innermost pending sum; the sums are folded
// from there to level 0, which is the slot.
void Trainer::AddAndPush(size_t chunk, const std::vector<size_t>& pending) {
  const ChunkRange& range = client_.chunks()[chunk];
  const size_t count = range.end - range.begin;
  if (!pending.empty()) {
    const size_t level = pending.front() + 1;
    RoundToWire(client_.wire_type(), Buffer(level).subspan(range.begin, count));
  }
  for (const size_t level : pending) {
    float* const sum = Buffer(level).data() + range.begin;
    const float* const addend = Buffer(level + 1).data() + range.begin;
    const trace::Span span("add", {}, {.chunk = static_cast<int32_t>(chunk)});
    AddOnWire(client_.wire_type(), sum, addend, sum, count);
  }
  client_.PushChunk(order_.version, part_, chunk);
}

void Trainer::AwaitLayer(int layer) {
  const Clock::time_point begin = Clock::now();
  for (const size_t chunk : reads_[static_cast<size_t>(layer)])
    client_.AwaitChunk(order_.version, chunk);
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
  MUSTER_CHECK(order.blocks.end <= BlockCount(data_.test->size(), order.block_size));
  if (order.average) {
    for (size_t c = 0; c < client_.chunks().size(); ++c) client_.AwaitAverage(order.version, c);
  }
  const std::span<const float> weights =
      order.average ? client_.Average() : client_.Weights(order.version);
  // Layouts derived from W(version) are not those of its average: a number that no version has.
  const int64_t contents = order.average ? -1 - order.version : order.version;
  const auto await = [this, &order](int layer) {
    if (!order.average) AwaitLayer(layer);
  };
  std::vector<int32_t> predictions(order.predictions ? static_cast<size_t>(order.block_size)
                                                     : size_t{0});
  for (int64_t block = order.blocks.begin; block < order.blocks.end; ++block) {
    const PreparedBatch& batch = blocks->Next(config_.deadlines().progress_s());
    const LossSums sums =
        tower_.Forward({.count = batch.count,
                        .images = batch.images,
                        .labels = batch.labels,
                        .sample_ids = batch.sample_ids,
                        .epoch = 0,
                        .predictions = order.predictions ? predictions.data() : nullptr},
                       Mode::kInference, weights, contents, await);
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
      for (const int32_t predicted : std::span(predictions).first(count)) {
        result.add_predicted(static_cast<uint32_t>(predicted));
      }
    }
    client_.ReportEvaluated(result);
  }
}

}  // namespace muster
