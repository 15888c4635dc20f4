#include "worker/client/terms.h"

#include <algorithm>

#include "common/link/wire_values.h"

namespace muster {

size_t Terms::LargestChunk() const {
  size_t largest = 0;
  for (const ChunkRange& chunk : chunks) largest = std::max(largest, chunk.size());
  return largest;
}

std::optional<Terms> ReadWelcome(const wire::Welcome& welcome, size_t arena_floats) {
  const StepPlan plan{.train_samples = welcome.train_samples(),
                      .global_batch = welcome.global_batch(),
                      .total_steps = welcome.total_steps(),
                      .slices = welcome.slices()};
  // One buffer for each slice, and one more (PROTOCOL.md): each takes memory here.
  const bool sane = plan.IsSane() && welcome.arenas() <= plan.slices + 1 &&
                    welcome.chunk_end_size() > 0 &&
                    welcome.chunk_end(welcome.chunk_end_size() - 1) == arena_floats &&
                    std::is_sorted(welcome.chunk_end().begin(), welcome.chunk_end().end());
  if (!sane) return std::nullopt;
  Terms terms{.plan = plan,
              .chunks = {},
              .share = {},
              .arenas = welcome.arenas(),
              .wire_type = welcome.tensor_type()};
  const auto share = ReadShare(welcome.assignment(), terms.plan, terms.arenas);
  if (!share) return std::nullopt;
  terms.share = *share;
  size_t begin = 0;
  for (const uint64_t end : welcome.chunk_end()) {
    terms.chunks.push_back({begin, end});
    begin = end;
  }
  return terms;
}

std::optional<WorkShare> ReadShare(const wire::Assignment& assignment, const StepPlan& plan,
                                   size_t arenas) {
  WorkShare share{
      .id = assignment.id(), .from_step = assignment.from_step(), .nodes = NodesOf(assignment)};
  if (share.from_step < 0 || share.nodes.size() > arenas) return std::nullopt;
  int64_t end = 0;
  for (const TreeNode& node : share.nodes) {
    if (node.level > Root(plan.slices).level) return std::nullopt;
    const Range slices = Covers(node, plan.slices);
    if (slices.empty() || slices.begin < end) return std::nullopt;
    end = slices.end;
  }
  return share;
}

void DescribeLayout(const VariableLayout& layout, wire::Hello& hello) {
  hello.set_graph_hash(layout.hash());
  for (const Variable& variable : layout.variables()) {
    wire::VariableShape& entry = *hello.add_variable();
    entry.set_name(variable.name);
    for (const int64_t n : variable.shape) entry.add_shape(n);
  }
  for (const std::string& line : layout.description()) hello.add_layer(line);
}

void TrimHello(wire::Hello& hello) {
  constexpr size_t kMostBytes = 256 << 10;
  if (hello.ByteSizeLong() > kMostBytes) hello.clear_layer();
  if (hello.ByteSizeLong() > kMostBytes) hello.clear_variable();
}

}  // namespace muster
