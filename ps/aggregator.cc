#include "ps/aggregator.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>

#include "common/error.h"
#include "common/trace/trace.h"
#include "ps/initializer.h"

namespace muster {
namespace {

// Fewer floats than this to read are added and updated faster than a thread is woken for it.
constexpr size_t kAtOnceFloats = 16384;

}  // namespace

Aggregator::Aggregator(const Graph& graph, std::vector<Chunk> chunks,
                       const config::Optimizer& optimizer, uint64_t seed, ThreadPool& pool,
                       Publish publish)
    : graph_(graph),
      chunks_(std::move(chunks)),
      segments_(DecaySegments(graph)),
      optimizer_(optimizer),
      publish_(std::move(publish)),
      planes_(SharedMemory::Create("muster-weights", 2 * graph.arena_floats() * sizeof(float),
                                   SharedMemory::Access::kReadWrite)),
      states_(chunks_.size()),
      pool_(pool) {
  if (optimizer.type() == config::Optimizer::MOMENTUM) momentum_ = Arena(graph.arena_floats());
  InitializeWeights(graph, seed, Plane(0));
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
  updates_allowed_ = false;
  updated_ = 0;
  for (ChunkState& state : states_) {
    state.parts.assign(expected_.size(), {});
    state.present.assign(expected_.size(), 0);
    state.count = 0;
    state.submitted = false;
  }
}

void Aggregator::AllowUpdates(float learning_rate) {
  rule_ = {optimizer_.type(), learning_rate, optimizer_.momentum()};
  updates_allowed_ = true;
  SubmitReady();
}

Aggregator::Verdict Aggregator::Add(uint32_t rank, size_t chunk, const TreeNode& node, bool empty,
                                    Payload payload) {
  if (chunk >= chunks_.size()) return Verdict::kUnknownChunk;
  const auto found = std::find_if(
      expected_.begin(), expected_.end(),
      [&](const ExpectedPart& part) { return part.rank == rank && part.node == node; });
  if (found == expected_.end()) return Verdict::kUnknownSubtree;
  const size_t want = empty ? 0 : chunks_[chunk].floats() * sizeof(float);
  if (payload.bytes != want) return Verdict::kWrongSize;
  ChunkState& state = states_[chunk];
  const size_t part = static_cast<size_t>(found - expected_.begin());
  if (state.present[part] != 0) return Verdict::kRepeated;
  state.present[part] = empty ? 2 : 1;
  state.parts[part] = std::move(payload);
  ++state.count;
  if (updates_allowed_ && state.count == expected_.size()) SubmitReady();
  return Verdict::kAccepted;
}

// Keeps the pool busy with complete chunks, the lowest layer first: the next forward pass waits
// for that one. No more than the pool's threads are handed out at a time, so that a lower chunk
// that completes later still goes before higher ones that wait.
void Aggregator::SubmitReady() {
  for (size_t c = 0; c < chunks_.size() && running_ < pool_.threads(); ++c) {
    ChunkState& state = states_[c];
    if (state.submitted || state.count < expected_.size()) continue;
    auto update = std::make_shared<ChunkUpdate>();
    update->chunk = chunks_[c];
    update->tree = tree_.get();
    for (const Payload& part : state.parts) {
      update->parts.push_back(part.floats.empty() ? nullptr : part.floats.data());
    }
    update->rule = rule_;
    update->segments = segments_;
    update->weights = Plane(step_);
    update->next_weights = Plane(step_ + 1);
    update->momentum = momentum_.floats();
    state.submitted = true;
    ++running_;
    if (chunks_[c].floats() * (expected_.size() + 3) <= kAtOnceFloats) {
      const bool finite = [&] {
        const trace::Span span("update", {}, {.step = step_, .chunk = static_cast<int32_t>(c)});
        return ApplyUpdate(*update);
      }();
      Finish(c, finite);
      continue;
    }
    pool_.Submit([this, c, update, step = step_]() -> ThreadPool::Completion {
      const trace::Span span("update", {}, {.step = step, .chunk = static_cast<int32_t>(c)});
      const bool finite = ApplyUpdate(*update);
      return [this, c, finite] {
        Finish(c, finite);
        SubmitReady();
      };
    });
  }
}

void Aggregator::Finish(size_t chunk, bool finite) {
  --running_;
  if (!finite) {
    if (!nonfinite_) nonfinite_ = Diagnose(chunk);
    return;  // this chunk stays unpublished: the step never completes
  }
  ++updated_;
  states_[chunk].parts.clear();  // lets go of the memory they came in
  publish_(step_ + 1, chunk);
}

Aggregator::Nonfinite Aggregator::Diagnose(size_t chunk) const {
  const Chunk& range = chunks_[chunk];
  const auto variable_at = [&](size_t at) -> const Variable& {
    const auto after = std::upper_bound(
        graph_.variables().begin(), graph_.variables().end(), at,
        [](size_t offset, const Variable& variable) { return offset < variable.offset; });
    return *std::prev(after);
  };
  const std::vector<Payload>& parts = states_[chunk].parts;
  for (size_t i = 0; i < parts.size(); ++i) {
    for (size_t j = 0; j < parts[i].floats.size(); ++j) {
      const float value = parts[i].floats[j];
      if (std::isfinite(value)) continue;
      const Variable& variable = variable_at(range.begin + j);
      return {fmt::format("the gradient of {}[{}] is {}", variable.name,
                          range.begin + j - variable.offset, value),
              expected_[i].rank};
    }
  }
  const std::span<const float> next = Plane(step_ + 1);
  for (size_t at = range.begin; at < range.end; ++at) {
    if (std::isfinite(next[at])) continue;
    const Variable& variable = variable_at(at);
    return {fmt::format("the update made {}[{}] {}, from finite gradients of all workers",
                        variable.name, at - variable.offset, next[at]),
            std::nullopt};
  }
  return {"a value was not finite", std::nullopt};
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

std::span<const float> Aggregator::WeightsOf(int64_t version, size_t chunk) const {
  return Weights(version).subspan(chunks_[chunk].begin, chunks_[chunk].floats());
}

uint64_t Aggregator::HashWeights(int64_t version) const {
  XXH3_state_t* state = XXH3_createState();
  XXH3_64bits_reset(state);
  const std::span<const float> weights = Weights(version);
  for (const Variable& variable : graph_.variables()) {
    XXH3_64bits_update(state, weights.data() + variable.offset, variable.count * sizeof(float));
  }
  const uint64_t hash = XXH3_64bits_digest(state);
  XXH3_freeState(state);
  return hash;
}

}  // namespace muster
