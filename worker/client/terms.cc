#include "worker/client/terms.h"

#include <algorithm>
#include <cmath>
#include <utility>

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
                      .slices = welcome.slices(),
                      .drop_last = welcome.drop_last()};
  // There is at most one buffer for each slice and one more (PROTOCOL.md). The limit bounds memory
  // use.
  const bool sane = plan.IsSane() && welcome.first_step() >= 0 &&
                    welcome.buffers() <= plan.slices + 1 && welcome.chunk_end_size() > 0 &&
                    welcome.chunk_end(welcome.chunk_end_size() - 1) == arena_floats &&
                    std::is_sorted(welcome.chunk_end().begin(), welcome.chunk_end().end());
  if (!sane) return std::nullopt;
  Terms terms{.plan = plan,
              .chunks = {},
              .nodes = {},
              .first_step = welcome.first_step(),
              .buffers = welcome.buffers(),
              .wire_type = welcome.tensor_type(),
              .adds_in_gpus = welcome.adds_in_gpus()};
  auto nodes = ReadNodes(welcome.subtree(), terms.plan, terms.buffers);
  if (!nodes) return std::nullopt;
  terms.nodes = std::move(*nodes);
  size_t begin = 0;
  for (const uint64_t end : welcome.chunk_end()) {
    terms.chunks.push_back({begin, end});
    begin = end;
  }
  return terms;
}

std::optional<std::vector<TreeNode>> ReadNodes(
    const google::protobuf::RepeatedPtrField<wire::Subtree>& subtrees, const StepPlan& plan,
    size_t buffers) {
  std::vector<TreeNode> nodes = NodesOf(subtrees);
  if (nodes.size() > buffers) return std::nullopt;
  int64_t end = 0;
  for (const TreeNode& node : nodes) {
    if (node.level > Root(plan.slices).level) return std::nullopt;
    const Range slices = Covers(node, plan.slices);
    if (slices.empty() || slices.begin < end) return std::nullopt;
    end = slices.end;
  }
  return nodes;
}

std::optional<Order> ReadTrain(const wire::Train& train, const Terms& terms) {
  const auto nodes = ReadNodes(train.subtree(), terms.plan, terms.buffers);
  const bool fits =
      nodes && terms.IsVersion(train.step()) && train.samples() > 0 &&
      std::isfinite(train.loss_scale()) && train.loss_scale() > 0 &&
      train.buffer() + nodes->size() <= terms.buffers && (!train.urgent() || nodes->size() == 1) &&
      std::ranges::all_of(train.chunk(), [&](uint32_t c) { return c < terms.chunks.size(); });
  if (!fits) return std::nullopt;
  Order order{.kind = Order::Kind::kTrain,
              .version = train.step(),
              .samples = train.samples(),
              .loss_scale = train.loss_scale(),
              .chunks = {train.chunk().begin(), train.chunk().end()},
              .taken_over = train.urgent()};
  for (const TreeNode& node : *nodes) {
    order.parts.push_back(
        {.order = train.order(), .node = node, .buffer = train.buffer() + order.parts.size()});
  }
  return order;
}

std::optional<Order> ReadEvaluate(const wire::Evaluate& evaluate, const Terms& terms) {
  if (!terms.IsVersion(evaluate.version()) || evaluate.block_size() == 0 ||
      evaluate.block_begin() > evaluate.block_end()) {
    return std::nullopt;
  }
  return Order{.kind = Order::Kind::kEvaluate,
               .version = evaluate.version(),
               .block_size = evaluate.block_size(),
               .blocks = {evaluate.block_begin(), evaluate.block_end()},
               .set = evaluate.set(),
               .average = evaluate.average(),
               .predictions = evaluate.predictions(),
               .images = evaluate.images()};
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
