#include "ps/aggregator.h"

#include <fmt/core.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>

#include "common/base/error.h"
#include "common/trace/trace.h"
#include "ps/average_gradient.h"
#include "ps/initializer.h"
#include "ps/unsigned_nan.h"
#include "ps/update.h"

namespace muster {
namespace {

// Fewer floats than this to read are added and updated faster than a thread is woken for it.
constexpr size_t kAtOnceFloats = 16384;

constexpr float kLargestHalf = 65504;

float ValueAt(WireType type, const Payload& part, size_t i) {
  if (type == wire::FP32) return part.floats()[i];
  float value;
  Widen(type, part.halves().subspan(i, 1), &value);
  return value;
}

}  // namespace

Aggregator::Aggregator(const VariableLayout& layout, std::vector<Chunk> chunks,
                       const config::Optimizer& optimizer, const PassKernels& kernels,
                       config::Run::OnNonfinite on_nonfinite, uint64_t seed, WireType wire_type,
                       ThreadPool& pool, Publish publish)
    : layout_(layout),
      chunks_(std::move(chunks)),
      optimizer_(optimizer, kernels),
      segments_(CutSegments(layout.variables(), layout.arena_floats(), optimizer)),
      may_skip_(on_nonfinite == config::Run::SKIP_STEP),
      two_phase_(may_skip_ || optimizer_.clip_norm() > 0),
      publish_(std::move(publish)),
      wire_type_(wire_type),
      planes_(SharedMemory::Create(
          "muster-weights",
          (optimizer_.keeps_average() ? 3 : 2) * layout.arena_floats() * sizeof(float),
          SharedMemory::Access::kReadWrite)),
      states_(chunks_.size()),
      pool_(pool) {
  for (size_t i = 0; i < optimizer_.state_arenas(); ++i) state_[i] = Arena(layout.arena_floats());
  if (two_phase_) averaged_ = Arena(layout.arena_floats());
  if (optimizer_.clip_norm() > 0) line_squares_.resize(layout.arena_floats() / kLineFloats);
  InitializeWeights(layout, seed, Plane(0));
  if (optimizer_.keeps_average()) std::ranges::copy(Plane(0), AveragePlane().begin());
  if (wire_type_ == wire::FP32) return;
  wire_planes_ = AlignedArray<uint16_t>(planes_.floats().size());
  (void)Narrow(wire_type_, Plane(0), WirePlaneAt(0).data());
}

// Empty with 32 bits.
std::span<uint16_t> Aggregator::WirePlaneAt(size_t plane) {
  if (wire_type_ == wire::FP32) return {};
  return wire_planes_.values().subspan(plane * layout_.arena_floats(), layout_.arena_floats());
}

void Aggregator::Expect(std::vector<ExpectedPart> parts, int64_t slices) {
  expected_ = std::move(parts);
  std::vector<TreeNode> nodes;
  for (const ExpectedPart& part : expected_) nodes.push_back(part.node);
  tree_ = std::make_unique<TreeSum>(nodes, slices);
}

void Aggregator::BeginStep(int64_t step) {
  MUSTER_CHECK(running_ == 0);
  step_ = step;
  phase_ = Phase::kCollecting;
  done_ = 0;
  nonfinite_.reset();
  ready_.clear();
  for (ChunkState& state : states_) {
    state.parts.assign(expected_.size(), {});
    state.present.assign(expected_.size(), 0);
    state.count = 0;
  }
}

void Aggregator::AllowUpdates(double learning_rate) {
  rule_ = optimizer_.RuleFor(updates_ + 1, learning_rate);
  Enter(two_phase_ ? Phase::kAveraging : Phase::kOnePass);
  SubmitReady();
}

void Aggregator::SkipStep() {
  Enter(Phase::kKeeping);
  SubmitReady();
}

void Aggregator::Enter(Phase phase) {
  MUSTER_CHECK(running_ == 0);
  phase_ = phase;
  done_ = 0;
  for (size_t c = 0; c < states_.size(); ++c) {
    if (states_[c].count == expected_.size()) ready_.insert(c);
  }
}

Aggregator::Verdict Aggregator::Add(uint32_t rank, size_t chunk, const TreeNode& node, bool empty,
                                    Payload payload) {
  if (chunk >= chunks_.size()) return Verdict::kUnknownChunk;
  const auto found = std::find_if(
      expected_.begin(), expected_.end(),
      [&](const ExpectedPart& part) { return part.rank == rank && part.node == node; });
  if (found == expected_.end()) return Verdict::kUnknownSubtree;
  const size_t want = empty ? 0 : chunks_[chunk].floats() * BytesOf(wire_type_);
  if (payload.bytes != want) return Verdict::kWrongSize;
  ChunkState& state = states_[chunk];
  const size_t part = static_cast<size_t>(found - expected_.begin());
  if (state.present[part] != 0) return Verdict::kRepeated;
  state.present[part] = empty ? 2 : 1;
  state.parts[part] = std::move(payload);
  ++state.count;
  if (phase_ != Phase::kCollecting && state.count == expected_.size()) {
    ready_.insert(chunk);
    SubmitReady();
  }
  return Verdict::kAccepted;
}

// Keeps the pool busy with complete chunks, the lowest layer first: the next forward pass waits
// for that one; the last one is made here, without a wake-up there and one back. No more than the
// pool's threads are handed out at a time, so that a lower chunk that completes later still goes
// before higher ones that wait.
void Aggregator::SubmitReady() {
  while (!ready_.empty() && running_ < pool_.threads()) {
    const size_t c = *ready_.begin();
    ready_.erase(ready_.begin());
    ++running_;
    // Nobody waits for the loop while the last chunk of all is made.
    const bool last = done_ + 1 == chunks_.size();
    if (last || chunks_[c].floats() * (expected_.size() + 3) <= kAtOnceFloats) {
      Finish(c, TracedJob(c)());
      continue;
    }
    pool_.Submit([this, c, job = TracedJob(c)]() -> ThreadPool::Completion {
      const bool finite = job();
      return [this, c, finite] {
        Finish(c, finite);
        SubmitReady();
      };
    });
  }
}

std::function<bool()> Aggregator::TracedJob(size_t c) {
  const char* const kind = phase_ == Phase::kAveraging ? "average" : "update";
  return [kind, c, step = step_, job = Job(c)] {
    const trace::Span span(kind, {}, {.step = step, .chunk = static_cast<int32_t>(c)});
    return job();
  };
}

std::function<bool()> Aggregator::Job(size_t c) {
  const Chunk& chunk = chunks_[c];
  const std::span<const float> weights = Plane(step_);
  const std::span<float> next = Plane(step_ + 1);
  if (phase_ == Phase::kKeeping) {
    return [chunk, weights, next, type = wire_type_, wire = WirePlaneAt((step_ + 1) % 2)] {
      const std::span<const float> kept = weights.subspan(chunk.begin, chunk.floats());
      std::ranges::copy(kept, next.begin() + static_cast<ptrdiff_t>(chunk.begin));
      if (!wire.empty()) (void)Narrow(type, kept, wire.data() + chunk.begin);
      return true;
    };
  }
  GradientParts gradient{.type = wire_type_};
  if (phase_ != Phase::kApplying) {
    gradient.tree = tree_.get();
    const ChunkState& state = states_[c];
    for (size_t i = 0; i < state.parts.size(); ++i) {
      gradient.parts.push_back(state.present[i] == 1 ? state.parts[i].data : nullptr);
    }
  }
  if (phase_ == Phase::kAveraging) {
    const ChunkAverage average{.kernels = optimizer_.kernels(),
                               .chunk = chunk,
                               .gradient = std::move(gradient),
                               .clip_value = rule_.clip_value,
                               .segments = segments_,
                               .averaged = averaged_.floats(),
                               .line_squares = line_squares_};
    return [average] { return AverageGradient(average); };
  }
  const ChunkUpdate update{
      .chunk = chunk,
      .gradient = std::move(gradient),
      .averaged = averaged_.floats(),
      .rule = rule_,
      .segments = segments_,
      .weights = weights,
      .next_weights = next,
      .state = {state_[0].floats(), state_[1].floats()},
      .average = AveragePlane(),
      .wire_weights = WirePlaneAt((step_ + 1) % 2),
      .wire_average = optimizer_.keeps_average() ? WirePlaneAt(2) : std::span<uint16_t>(),
      .stream = weights.size_bytes() > kStreamBytes};
  return [update] { return ApplyUpdate(update); };
}

void Aggregator::Finish(size_t chunk, bool finite) {
  --running_;
  if (!finite && !nonfinite_) nonfinite_ = Diagnose(chunk);
  const bool skippable = may_skip_ && phase_ == Phase::kAveraging;
  if (!finite && !skippable) return;  // stays unpublished: the step never completes
  ++done_;
  states_[chunk].parts.clear();  // lets go of the memory they came in
  if (phase_ != Phase::kAveraging) {
    if (done_ == chunks_.size() && phase_ != Phase::kKeeping) ++updates_;
    return publish_(step_ + 1, chunk);
  }
  if (done_ == chunks_.size()) EndAveraging();
}

// The whole gradient is there.
void Aggregator::EndAveraging() {
  if (nonfinite_) return Enter(Phase::kKeeping);
  if (optimizer_.clip_norm() > 0) {
    const double norm = GradientNorm(line_squares_);
    rule_.gradient_scale =
        static_cast<float>(std::min(1.0, optimizer_.clip_norm() / (norm + 1e-6)));
  }
  Enter(Phase::kApplying);
}

Aggregator::Nonfinite Aggregator::Diagnose(size_t chunk) const {
  const Chunk& range = chunks_[chunk];
  // Of a two-phase step's second phase there are no parts any more; they were all finite.
  const std::vector<Payload>& parts = states_[chunk].parts;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (states_[chunk].present[i] != 1) continue;
    for (size_t j = 0; j < range.floats(); ++j) {
      const float value = ValueAt(wire_type_, parts[i], j);
      if (std::isfinite(value)) continue;
      const Variable& variable = layout_.VariableAt(range.begin + j);
      return {fmt::format("the gradient of {}[{}] is {}", variable.name,
                          range.begin + j - variable.offset, UnsignedNan(value)),
              expected_[i].rank};
    }
  }
  if (phase_ == Phase::kAveraging) {
    for (size_t at = range.begin; at < range.end; ++at) {
      const float value = averaged_.floats()[at];
      if (std::isfinite(value)) continue;
      const Variable& variable = layout_.VariableAt(at);
      return {fmt::format("the sum of the gradients of {}[{}] is {}, although those of all workers "
                          "are finite",
                          variable.name, at - variable.offset, UnsignedNan(value)),
              std::nullopt};
    }
  }
  const std::span<const float> next = Plane(step_ + 1);
  for (size_t at = range.begin; at < range.end; ++at) {
    if (std::isfinite(next[at])) continue;
    const Variable& variable = layout_.VariableAt(at);
    return {fmt::format("the update made {}[{}] {}, from finite gradients of all workers",
                        variable.name, at - variable.offset, UnsignedNan(next[at])),
            std::nullopt};
  }
  for (size_t at = range.begin; wire_type_ == wire::FP16 && at < range.end; ++at) {
    if (std::abs(next[at]) <= kLargestHalf) continue;
    const Variable& variable = layout_.VariableAt(at);
    return {fmt::format("the update made {}[{}] {}, and cluster.wire_dtype FP16 ends at {:g}",
                        variable.name, at - variable.offset, next[at], kLargestHalf),
            std::nullopt};
  }
  // Weights may be finite although a second moment is not: √∞ divides the gradient away.
  for (size_t at = range.begin; at < range.end; ++at) {
    for (const Arena& arena : state_) {
      if (arena.floats().empty() || std::isfinite(arena.floats()[at])) continue;
      const Variable& variable = layout_.VariableAt(at);
      return {fmt::format("the optimizer's second moment of {}[{}] is {}, from finite gradients of "
                          "all workers",
                          variable.name, at - variable.offset, UnsignedNan(arena.floats()[at])),
              std::nullopt};
    }
  }
  // Clipped or frozen, and so not seen in a weight.
  return {fmt::format("the sum of the gradients of {} is not finite, although those of all workers "
                      "are",
                      layout_.VariableAt(range.begin).name),
          std::nullopt};
}

std::vector<uint32_t> Aggregator::MissingRanks() const {
  std::set<uint32_t> missing;
  for (const ChunkState& state : states_) {
    for (size_t i = 0; i < state.present.size(); ++i) {
      if (state.present[i] == 0) missing.insert(expected_[i].rank);
    }
  }
  return {missing.begin(), missing.end()};
}

std::span<const std::byte> Aggregator::WireChunk(size_t plane, size_t chunk) const {
  const size_t begin = plane * layout_.arena_floats() + chunks_[chunk].begin;
  const size_t count = chunks_[chunk].floats();
  if (wire_type_ == wire::FP32) return std::as_bytes(planes_.floats().subspan(begin, count));
  return std::as_bytes(wire_planes_.values().subspan(begin, count));
}

std::span<const std::byte> Aggregator::WireWeightsOf(int64_t version, size_t chunk) const {
  return WireChunk(static_cast<size_t>(version % 2), chunk);
}

std::span<const std::byte> Aggregator::WireAverageOf(size_t chunk) const {
  MUSTER_CHECK(optimizer_.keeps_average());
  return WireChunk(2, chunk);
}

uint64_t Aggregator::HashWeights(int64_t version) const {
  XXH3_state_t* state = XXH3_createState();
  XXH3_64bits_reset(state);
  const std::span<const float> weights = Weights(version);
  for (const Variable& variable : layout_.variables()) {
    XXH3_64bits_update(state, weights.data() + variable.offset, variable.count * sizeof(float));
  }
  const uint64_t hash = XXH3_64bits_digest(state);
  XXH3_freeState(state);
  return hash;
}

}  // namespace muster
