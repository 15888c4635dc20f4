#include "ps/update/aggregator.h"

#include <algorithm>

#include "common/base/error.h"
#include "common/trace/trace.h"
#include "ps/update/average_gradient.h"
#include "ps/update/update.h"

namespace muster {
namespace {

// With fewer input floats than this, updating takes less time than waking a thread.
constexpr size_t kAtOnceFloats = 16384;

template <typename T>
void CopyChunk(const Chunk& chunk, std::span<const T> from, std::span<T> to) {
  if (to.empty()) return;
  std::ranges::copy(from.subspan(chunk.begin, chunk.floats()),
                    to.begin() + static_cast<ptrdiff_t>(chunk.begin));
}

}  // namespace

Aggregator::Aggregator(Variables& variables, ThreadPool& pool, std::vector<Chunk> chunks,
                       const config::Optimizer& optimizer, const UpdateKernelTable& kernels,
                       bool may_skip, Publish publish)
    : variables_(variables),
      pool_(pool),
      chunks_(std::move(chunks)),
      optimizer_(optimizer, kernels),
      segments_(CutSegments(variables.layout().variables(), variables.layout().arena_floats(),
                            optimizer)),
      may_skip_(may_skip),
      two_phase_(may_skip || optimizer_.clip_norm() > 0 || optimizer_.is_program()),
      publish_(std::move(publish)),
      gradients_(chunks_, variables.wire_type()) {
  const size_t floats = variables.layout().arena_floats();
  if (two_phase_ && !optimizer_.is_program()) {
    average_memory_ = Arena(floats);
    averaged_ = average_memory_.floats();
  }
  if (optimizer_.clip_norm() > 0) line_squares_.resize(floats / kLineFloats);
}

void Aggregator::UpdateBy(Program program) {
  program_ = std::move(program);
  averaged_ = program_.gradient;
}

void Aggregator::BeginStep(int64_t step, int64_t slices) {
  MUSTER_CHECK(running_ == 0);
  step_ = step;
  phase_ = Phase::kCollecting;
  done_ = 0;
  nonfinite_.reset();
  ready_.clear();
  gradients_.BeginStep(slices);
}

void Aggregator::Proceed(const Decision& decision) {
  evaluate_average_ = decision.evaluate_average;
  MUSTER_CHECK(decision.loss_scale == 1 || two_phase_);
  unscale_ = static_cast<float>(1 / decision.loss_scale);
  weigh_ = decision.weight > 0 ? static_cast<float>(1 / decision.weight) : 0;
  observers_.clear();
  if (decision.observe != Observe::kNothing && !decision.skip && !program_.update) {
    observers_.assign(chunks_.size(),
                      {variables_.layout(), decision.observe == Observe::kHistograms});
  }
  if (!decision.skip) {
    rule_ = optimizer_.RuleFor(variables_.updates() + 1, decision.learning_rate);
    rule_.weigh = two_phase_ ? 1 : weigh_;
  }
  Enter(decision.skip ? Phase::kKeeping : two_phase_ ? Phase::kAveraging : Phase::kFusedUpdate);
  SubmitReady();
}

void Aggregator::Enter(Phase phase) {
  MUSTER_CHECK(running_ == 0);
  phase_ = phase;
  done_ = 0;
  for (size_t c = 0; c < chunks_.size(); ++c) {
    if (gradients_.Complete(c)) ready_.insert(c);
  }
}

bool Aggregator::Add(std::optional<uint32_t> rank, size_t chunk, const TreeNode& node, bool empty,
                     Payload payload) {
  if (!gradients_.Add(rank, chunk, node, empty, std::move(payload))) return false;
  if (phase_ != Phase::kCollecting && gradients_.Complete(chunk)) {
    ready_.insert(chunk);
    SubmitReady();
  }
  return true;
}

// Hands complete chunks to the pool, the lowest layer first, because the next forward pass starts
// with it. At most one chunk per thread is handed out, so that a low chunk that completes later
// still runs before waiting higher ones. The loop processes the last chunk itself to save two
// wake-ups.
void Aggregator::SubmitReady() {
  while (!ready_.empty() && running_ < pool_.threads()) {
    const size_t c = *ready_.begin();
    ready_.erase(ready_.begin());
    ++running_;
    // Nothing else needs the loop while the last chunk is processed.
    const bool last = done_ + 1 == chunks_.size();
    if (last || chunks_[c].floats() * (gradients_.parts(c).size() + 3) <= kAtOnceFloats) {
      Finish(c, MakeJob(c)());
      continue;
    }
    pool_.Submit([this, c, job = MakeJob(c)]() -> ThreadPool::Completion {
      const bool finite = job();
      return [this, c, finite] {
        Finish(c, finite);
        SubmitReady();
      };
    });
  }
}

Aggregator::Job Aggregator::MakeJob(size_t c) {
  switch (phase_) {
    case Phase::kAveraging:
      return Traced("average", step_, c, AverageJob(c));
    case Phase::kKeeping:
      return Traced("update", step_, c, KeepJob(chunks_[c]));
    case Phase::kTaking:
      return Traced("take", step_, c, TakeJob(chunks_[c]));
    default:
      return Traced("update", step_, c, UpdateJob(c));
  }
}

Aggregator::Job Aggregator::Traced(const char* kind, int64_t step, size_t c, Job job) {
  return [kind, c, step, job = std::move(job)] {
    const trace::Span span(kind, {}, {.step = step, .chunk = static_cast<int32_t>(c)});
    return job();
  };
}

Aggregator::Job Aggregator::KeepJob(const Chunk& chunk) {
  return [this, chunk, step = step_, evaluate = evaluate_average_] {
    const std::span<const float> weights = variables_.Weights(step);
    CopyChunk(chunk, weights, variables_.Weights(step + 1));
    CopyChunk<uint16_t>(chunk, variables_.HalfWeights(step), variables_.HalfWeights(step + 1));
    if (!evaluate) return true;
    const std::span<const float> average = variables_.Average(variables_.updates());
    CopyChunk(chunk, average, variables_.EvaluatedAverage());
    if (const std::span<uint16_t> halves = variables_.HalfAverage(); !halves.empty()) {
      (void)Narrow(variables_.wire_type(), average.subspan(chunk.begin, chunk.floats()),
                   halves.data() + chunk.begin);
    }
    return true;
  };
}

Aggregator::Job Aggregator::AverageJob(size_t c) {
  const ChunkAverage average{.kernels = optimizer_.kernels(),
                             .chunk = chunks_[c],
                             .gradient = gradients_.PartsOf(c),
                             .unscale = unscale_,
                             .weigh = weigh_,
                             .clip_value = rule_.clip_value,
                             .segments = segments_,
                             .averaged = averaged_,
                             .line_squares = line_squares_};
  return [average] { return AverageGradient(average); };
}

Aggregator::Job Aggregator::TakeJob(const Chunk& chunk) {
  return [this, chunk, step = step_] {
    const std::span<const float> from = program_.weights.subspan(chunk.begin, chunk.floats());
    float* const to = variables_.Weights(step + 1).data() + chunk.begin;
    uint32_t bad = optimizer_.kernels().copy_finite(from.data(), to, from.size());
    const std::span<uint16_t> halves = variables_.HalfWeights(step + 1);
    if (!halves.empty()) bad |= Narrow(variables_.wire_type(), from, halves.data() + chunk.begin);
    return bad == 0;
  };
}

Aggregator::Job Aggregator::UpdateJob(size_t c) {
  const int64_t updates = variables_.updates();
  ChunkUpdate update{.chunk = chunks_[c],
                     .gradient = {.type = variables_.wire_type()},
                     .averaged = averaged_,
                     .rule = rule_,
                     .segments = segments_,
                     .weights = variables_.Weights(step_),
                     .next_weights = variables_.Weights(step_ + 1),
                     .average = variables_.Average(updates),
                     .next_average = variables_.Average(updates + 1),
                     .wire_weights = variables_.HalfWeights(step_ + 1)};
  if (phase_ == Phase::kFusedUpdate) update.gradient = gradients_.PartsOf(c);
  for (size_t i = 0; i < variables_.state_arenas(); ++i) {
    update.state[i] = variables_.State(i, updates);
    update.next_state[i] = variables_.State(i, updates + 1);
  }
  if (evaluate_average_) {
    update.evaluated_average = variables_.EvaluatedAverage();
    update.wire_average = variables_.HalfAverage();
  }
  if (!observers_.empty()) update.observer = &observers_[c];
  update.stream = update.weights.size_bytes() > kStreamBytes;
  return [update] { return ApplyUpdate(update); };
}

void Aggregator::Finish(size_t c, bool finite) {
  --running_;
  if (!finite && !nonfinite_) {
    nonfinite_ = FindNonfinite({.variables = variables_,
                                .gradients = gradients_,
                                .chunk = c,
                                .range = chunks_[c],
                                .step = step_,
                                .averaged = sums() ? averaged_ : std::span<float>()});
  }
  const bool skippable = may_skip_ && sums();
  if (!finite && !skippable) return;  // not published: the step never completes
  ++done_;
  gradients_.Release(c);
  const bool all = done_ == chunks_.size();
  if (sums()) {
    if (all) EndAveraging();
    return;
  }
  if (all && phase_ != Phase::kKeeping) variables_.CountUpdate();
  publish_(step_ + 1, c);
}

std::optional<Observation> Aggregator::TakeObservation() {
  if (observers_.empty() || skips()) return std::nullopt;
  const Observation observation = SumUp(observers_, rule_.gradient_scale);
  observers_.clear();
  return observation;
}

// Called when the whole gradient has been averaged.
void Aggregator::EndAveraging() {
  if (nonfinite_) return Enter(Phase::kKeeping);
  if (optimizer_.clip_norm() > 0) {
    const double norm = GradientNorm(line_squares_);
    rule_.gradient_scale =
        static_cast<float>(std::min(1.0, optimizer_.clip_norm() / (norm + 1e-6)));
  }
  if (!program_.update) return Enter(Phase::kApplying);
  phase_ = Phase::kUpdating;
  done_ = 0;
  program_.update(step_, [this](double learning_rate) {
    program_rate_ = learning_rate;
    Enter(Phase::kTaking);
    SubmitReady();
  });
}

}  // namespace muster
