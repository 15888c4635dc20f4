// Computes the gradients of one step: slices, their sums, and the push to the server.
#include <algorithm>
#include <chrono>
#include <utility>

#include "common/base/error.h"
#include "common/trace/trace.h"
#include "worker/trainer/locked_batches.h"
#include "worker/trainer/trainer.h"

namespace muster {

std::unique_ptr<BatchPipeline> Trainer::MakeBatches(int64_t first_step, int64_t end_step,
                                                    const std::vector<TreeNode>& nodes) const {
  TrainPipelineOptions options;
  options.plan = client_.plan();
  options.plan.total_steps = end_step;
  options.slices = CoveredBy(nodes, options.plan.slices);
  options.first_step = first_step;
  options.seed = config_.run().seed();
  options.data = config_.data();
  options.orders = orders_;
  options.images = images_->train_by();
  return LockBatches(backend_, MakeTrainPipeline(*data_.train, options));
}

void Trainer::Train(Order order) {
  report_.BeginStep();
  report_.BookWait(follower_.waited_since(), client_.HandedOverAt());
  trace::AtStep(order.version);
  const trace::Span span("step");
  const Clock::time_point begin = Clock::now();
  // Batches were made ahead for the former share and the next step. Discards them if either
  // differs.
  std::vector<TreeNode> nodes;
  for (const OrderPart& part : order.parts) nodes.push_back(part.node);
  if (share_.batches == nullptr || nodes != share_.nodes || order.version != share_.next_step) {
    AwaitDevice(*input_copied_, StepLimit());  // the copy of a batch that was made ahead
    share_.batches.reset();                    // ends its threads first
    share_.batches = MakeBatches(order.version, client_.plan().total_steps, nodes);
  }
  share_.nodes = std::move(nodes);
  share_.next_step = order.version + 1;
  work_ = {.order = std::move(order), .batches = share_.batches.get()};
  for (const OrderPart& part : work_.order.parts) ComputePart(part);
  const Clock::time_point queued = Clock::now();
  completions_.RunAll(StepLimit());
  report_.BookCompute(queued);
  if (!stays_in_gpu_) {  // where the relay may still read them
    follower_.GiveBackBuffers(work_.order.version,
                              [this](std::span<float> slot) { gradients_.Forget(slot); });
  }
  client_.ReportTimes(report_.Take(work_.order.version));
  const std::chrono::duration<double> took = Clock::now() - begin;
  longest_step_s_ = std::max(longest_step_s_.value_or(0), took.count());
}

void Trainer::TakeOver(Order order) {
  const trace::Span span("take over", {}, {.step = order.version});
  completions_.RunAll(StepLimit());
  const std::vector<TreeNode> nodes{order.parts.at(0).node};
  const auto batches = MakeBatches(order.version, order.version + 1, nodes);
  const DrainAtExit drain{backend_};  // before the batches' memory is freed
  Work work{.order = std::move(order), .batches = batches.get()};
  work.chunks.assign(client_.chunks().size(), work.order.chunks.empty());
  for (const uint32_t chunk : work.order.chunks) work.chunks[chunk] = true;
  Work under_way = std::exchange(work_, std::move(work));
  ComputePart(work_.order.parts[0]);
  completions_.RunAll(StepLimit());
  work_ = std::move(under_way);
  if (work_.part != nullptr) gradients_.UseSlot(client_.GradientBuffer(work_.part->buffer));
}

void Trainer::ComputePart(const OrderPart& part) {
  work_.part = &part;
  work_.streamed = false;
  const bool is_new = follower_.UseBuffer(part, work_.order.version);
  gradients_.UseSlot(client_.GradientBuffer(part.buffer));
  gradients_.MakeLevels(part.node.level);
  if (stays_in_gpu_ && is_new) client_.ShareGpuBuffer(part.buffer, gradients_.Export());
  const bool any = AccumulateSlices(part.node, client_.plan().slices, *this);
  for (size_t c = 0; c < client_.chunks().size(); ++c) {
    if (!any && (work_.chunks.empty() || work_.chunks[c])) {
      client_.PushEmpty(work_.order.version, part, c);
    } else if (any && !work_.streamed) {
      CopyOutAndPush(c);
    }
  }
}

// An urgent order can interrupt only the first slice of a step: a pass ends only after all weights
// of its version have arrived, and then the previous step is complete.
LossSums& Trainer::Forward(const PreparedBatch& batch) {
  const Clock::time_point begin = Clock::now();
  report_.BeginPasses();
  bool again = false;
  const auto pass = [&]() -> LossSums* {
    if (again) report_.BeginPassesAgain(begin);
    weights_.Use(client_.Weights(work_.order.version));
    // a deque: the address stays valid during the step
    LossSums& sums = work_.sums.emplace_back();
    tower_.Forward(
        InputOf(batch), Mode::kTraining, weights_.floats(), work_.order.version,
        [this](int layer) { AwaitLayer(layer); }, sums);
    return &sums;
  };
  return *follower_.Repeat(pass, [&] {
    backend_.Drain();
    work_.sums.pop_back();
    again = true;
  });
}

void Trainer::AddUp(const std::vector<size_t>& pending) {
  for (const size_t level : pending) {
    const trace::Span span("add", "slices");
    gradients_.AddNextTo(level, 0, graph_.arena_floats());
  }
}

bool Trainer::ComputeSlice(int64_t slice, const SumPlace& place) {
  const trace::Span span("slice", {}, {.slice = static_cast<int32_t>(slice)});
  const Clock::time_point begin = Clock::now();
  // The copy of the last batch must be complete, because the pipeline overwrites the batch.
  AwaitDevice(*input_copied_, StepLimit());
  const PreparedBatch& batch = work_.batches->Next(StepLimit());
  MUSTER_CHECK(batch.step == work_.order.version && batch.index == slice);
  report_.BookInput(begin);
  if (batch.count == 0) {
    // Orders arrive early: the step begins only when all its weights have arrived.
    follower_.AwaitAll(work_.order);
    client_.ReportLoss(work_.order.version, *work_.part, slice, 0, 0, 0);
    return false;
  }
  const Clock::time_point forward = Clock::now();
  LossSums& sums = Forward(batch);
  backend_.Record(Queue::kCopyIn, *input_copied_);
  const Clock::time_point loss = Clock::now();
  // Gradients follow on the same queue, so the server gets a slice's loss before them.
  const OrderPart& part = *work_.part;  // in work_.order, which lives until everything is pushed
  completions_.Then(Queue::kCopyOut, [this, slice, count = batch.count, &part, &sums] {
    client_.ReportLoss(work_.order.version, part, slice, count, sums.loss, sums.correct);
  });
  report_.AddPushed(loss);
  // Gradients are scaled for the mean over the whole batch, so that the workers and the server only
  // add. The loss scale is a power of two, so it changes no bits of gradients in range.
  const std::span<float> gradient = gradients_.Level(place.level);
  guard_.Fill(gradient);
  work_.last_slice = slice;
  const float scale = work_.order.loss_scale / static_cast<float>(work_.order.samples);
  tower_.Backward(scale, weights_.floats(), gradient, [&](int layer) {
    if (place.last) LayerDone(layer, place);
  });
  StageNext(*work_.batches, Mode::kTraining);
  report_.BookCompute(forward);
  if (place.last) {
    work_.streamed = true;
    return true;
  }
  // Rounds the gradient, which is added on this worker, to what the server would have received.
  guard_.Check(gradient, 0, graph_.arena_floats(), slice, work_.order.version);
  gradients_.Round(place.level, 0, graph_.arena_floats());
  AddUp(place.pending);
  return true;
}

void Trainer::LayerDone(int layer, const SumPlace& place) {
  const Clock::time_point begin = Clock::now();
  for (const size_t chunk : layer_chunks_[static_cast<size_t>(layer)]) {
    AddAndPush(chunk, place);
  }
  completions_.RunDone();
  report_.AddPushed(begin);
}

void Trainer::AddAndPush(size_t chunk, const SumPlace& place) {
  const ChunkRange& range = client_.chunks()[chunk];
  guard_.Check(gradients_.Level(place.level), range.begin, range.end, work_.last_slice,
               work_.order.version);
  // What nothing is added to is rounded where it is sent.
  if (!place.pending.empty()) gradients_.Round(place.level, range.begin, range.end);
  for (const size_t level : place.pending) {
    const trace::Span span("add", {}, {.chunk = static_cast<int32_t>(chunk)});
    gradients_.AddNextTo(level, range.begin, range.end);
  }
  CopyOutAndPush(chunk);
}

void Trainer::CopyOutAndPush(size_t chunk) {
  if (!work_.chunks.empty() && !work_.chunks[chunk]) return;
  if (!stays_in_gpu_) {
    gradients_.CopyOut(client_.chunks()[chunk].begin, client_.chunks()[chunk].end);
  }
  completions_.Then(stays_in_gpu_ ? Queue::kCompute : Queue::kCopyOut,
                    [this, chunk, part = work_.part] {
                      client_.PushChunk(work_.order.version, *part, chunk, stays_in_gpu_);
                    });
}

double Trainer::StepLimit() const {
  const config::Deadlines& limits = config_.deadlines();
  // The first step includes reads from a cold disk.
  if (!longest_step_s_) return limits.first_step_s();
  // At least the server's limit, which depends on the median.
  return std::max(limits.step_s(), limits.step_median_factor() * *longest_step_s_);
}

}  // namespace muster
