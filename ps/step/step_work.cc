#include "ps/step/step_work.h"

#include <fmt/core.h>

#include <algorithm>

#include "common/link/wire_values.h"

namespace muster {
namespace {

constexpr uint32_t kNobody = UINT32_MAX;

}  // namespace

bool StepOrder::IsDelivered() const {
  return std::ranges::all_of(parts, [](const Part& part) { return part.missing_count == 0; });
}

void StepWork::BeginStep(int64_t step) {
  step_ = step;
  losses_.Begin(plan_, plan_.At(step));
  arrived_.BeginStep(plan_.slices);
  std::erase_if(orders_, [step](const StepOrder& order) { return order.step < step; });
  paused_until_.reset();
  needs_helpers_ = false;
  // Workers may have been lost since the step was ordered.
  const std::vector<bool> unassigned = Unassigned();
  some_unassigned_ = std::ranges::count(unassigned, true) > 0;
}

StepOrder& StepWork::Add(uint32_t rank, int64_t step, uint32_t buffer, Time now) {
  StepOrder& order = orders_.emplace_back();
  order.id = next_id_++;
  order.rank = rank;
  order.step = step;
  order.buffer = buffer;
  order.given = now;
  return order;
}

const StepOrder& StepWork::Give(uint32_t rank, int64_t step, std::span<const TreeNode> nodes,
                                Time now) {
  StepOrder& order = Add(rank, step, 0, now);
  for (const TreeNode& node : nodes) {
    order.parts.push_back({node, std::vector<bool>(chunks_, true), chunks_});
  }
  return order;
}

std::vector<StepOrder> StepWork::GiveUnassigned(std::vector<uint32_t> helpers, uint32_t buffers,
                                                const PoisonWatch& poison, Time now) {
  paused_until_.reset();
  some_unassigned_ = needs_helpers_ = false;
  std::vector<bool> unassigned = Unassigned();
  for (int64_t slice = 0; slice < plan_.slices; ++slice) {
    if (!unassigned[static_cast<size_t>(slice)]) continue;
    const auto until = poison.PausedUntil({WorkItem::Kind::kSlice, slice}, now);
    if (!until) continue;
    unassigned[static_cast<size_t>(slice)] = false;
    some_unassigned_ = true;
    if (!paused_until_ || *until < *paused_until_) paused_until_ = until;
  }
  std::vector<StepOrder> given;
  // Make at least as many pieces as there are workers, busy or not. The first free worker takes the
  // next.
  const std::vector<TreeNode> pieces = Pieces(unassigned, poison, helpers.size());
  std::erase_if(helpers, [this](uint32_t rank) { return Computes(rank); });
  for (const TreeNode& piece : pieces) {
    const auto helper = std::ranges::find_if(
        helpers, [&](uint32_t rank) { return FreeBuffer(rank, buffers).has_value(); });
    if (helper == helpers.end()) {
      some_unassigned_ = needs_helpers_ = true;
      break;
    }
    StepOrder& order = Add(*helper, step_, *FreeBuffer(*helper, buffers), now);
    order.urgent = true;
    order.parts.push_back({piece, arrived_.MissingChunks(piece), 0});
    order.parts.back().missing_count =
        static_cast<size_t>(std::ranges::count(order.parts.back().missing, true));
    helpers.erase(helper);
    given.push_back(order);
  }
  return given;
}

void StepWork::Close(uint32_t rank) {
  for (StepOrder& order : orders_) {
    if (order.rank != rank || !order.open) continue;
    order.open = false;
    if (order.step == step_ && !order.IsDelivered()) some_unassigned_ = true;
  }
}

void StepWork::Lose(uint32_t rank) {
  Close(rank);
  for (StepOrder& order : orders_) {
    if (order.rank == rank) order.rank = kNobody;
  }
}

StepLosses::Added StepWork::AddLoss(uint32_t rank, const wire::SliceLoss& loss, std::string& why) {
  const int64_t slice = loss.slice();
  const auto found = std::ranges::find(orders_, loss.order(), &StepOrder::id);
  const bool has_it = found != orders_.end() && found->open && found->rank == rank &&
                      found->step == step_ &&
                      std::ranges::any_of(found->parts, [&](const StepOrder::Part& part) {
                        const Range slices = Covers(part.node, plan_.slices);
                        return slices.begin <= slice && slice < slices.end;
                      });
  if (!has_it) {
    why = fmt::format("a loss for slice {} under order {}, which is not assigned to it", slice,
                      loss.order());
  } else if (found->losses.contains(slice)) {
    why = fmt::format("a duplicate loss for slice {}", slice);
  } else {
    StepLosses::OfProgram program;
    if (loss.has_learning_rate()) program.learning_rate = loss.learning_rate();
    if (loss.has_weight()) program.weight = loss.weight();
    const std::optional<ScalarSums> scalars = ScalarsOf(loss.scalar(), loss.samples());
    const StepLosses::Added added = scalars ? losses_.Add(rank, slice, loss.samples(), loss.loss(),
                                                          loss.correct(), *scalars, program)
                                            : StepLosses::Added::kUnexpected;
    if (added == StepLosses::Added::kUnexpected) {
      why = fmt::format("an invalid loss for slice {}", slice);
    } else {
      found->losses.insert(slice);
    }
    return added;
  }
  return StepLosses::Added::kUnexpected;
}

const StepOrder* StepWork::Find(uint32_t rank, const wire::GradientPart& part,
                                std::string& why) const {
  const TreeNode node = NodeOf(part.subtree());
  const auto order = std::ranges::find(orders_, part.order(), &StepOrder::id);
  const bool has_order =
      order != orders_.end() && order->open && order->rank == rank && order->step == step_;
  const auto found = has_order ? std::ranges::find(order->parts, node, &StepOrder::Part::node)
                               : std::vector<StepOrder::Part>::const_iterator();
  if (!has_order || found == order->parts.end() ||
      order->buffer + (found - order->parts.begin()) != part.buffer()) {
    why = fmt::format("subtree {}.{} in buffer {} under order {}, which is not assigned to it",
                      node.level, node.index, part.buffer(), part.order());
  } else if (part.chunk() >= chunks_) {
    why = fmt::format("chunk {}, but there are only {} chunks", part.chunk(), chunks_);
  } else if (!found->missing[part.chunk()]) {
    why = fmt::format("a duplicate of chunk {}", part.chunk());
  } else {
    const Range slices = Covers(node, plan_.slices);
    for (int64_t slice = slices.begin; slice < slices.end; ++slice) {
      if (losses_.Has(slice)) continue;
      why = fmt::format("a gradient for slice {} before its loss", slice);
      return nullptr;
    }
    return &*order;
  }
  return nullptr;
}

void StepWork::Arrive(const StepOrder& order, const wire::GradientPart& message) {
  StepOrder& mine = *std::ranges::find(orders_, order.id, &StepOrder::id);
  StepOrder::Part& part =
      *std::ranges::find(mine.parts, NodeOf(message.subtree()), &StepOrder::Part::node);
  part.missing[message.chunk()] = false;
  --part.missing_count;
  part.in_use = true;
  arrived_.Add(message.chunk(), part.node);
}

bool StepWork::Owes(uint32_t rank, int64_t step) const {
  return std::ranges::any_of(orders_, [&](const StepOrder& order) {
    return order.open && order.rank == rank && order.step == step && !order.IsDelivered();
  });
}

bool StepWork::Owes(uint32_t rank) const {
  return std::ranges::any_of(orders_, [&](const StepOrder& order) {
    return order.open && order.rank == rank && !order.IsDelivered();
  });
}

bool StepWork::Computes(uint32_t rank) const {
  return std::ranges::any_of(orders_, [&](const StepOrder& order) {
    if (!order.open || order.rank != rank || order.step != step_) return false;
    int64_t slices = 0;
    for (const StepOrder::Part& part : order.parts)
      slices += Covers(part.node, plan_.slices).size();
    return std::ssize(order.losses) < slices;
  });
}

std::vector<uint32_t> StepWork::Late(Time now, Time since,
                                     std::chrono::steady_clock::duration limit) const {
  std::set<uint32_t> late;
  for (const StepOrder& order : orders_) {
    if (!order.open || order.step != step_ || order.IsDelivered()) continue;
    if (now - std::max(order.given, since) > limit) late.insert(order.rank);
  }
  return {late.begin(), late.end()};
}

std::vector<int64_t> StepWork::NextSlices(uint32_t rank, bool urgent) const {
  for (const StepOrder& order : orders_) {
    if (!order.open || order.rank != rank || order.step != step_ || order.urgent != urgent)
      continue;
    for (const StepOrder::Part& part : order.parts) {
      if (part.missing_count == 0) continue;
      std::vector<int64_t> slices;
      const Range range = Covers(part.node, plan_.slices);
      for (int64_t slice = range.begin; slice < range.end; ++slice) slices.push_back(slice);
      return slices;
    }
  }
  return {};
}

int64_t StepWork::OpenSlices(uint32_t rank) const {
  int64_t slices = 0;
  for (const StepOrder& order : orders_) {
    if (!order.open || order.rank != rank) continue;
    for (const StepOrder::Part& part : order.parts) {
      if (part.missing_count > 0) slices += Covers(part.node, plan_.slices).size();
    }
  }
  return slices;
}

int64_t StepWork::OwnLosses(uint32_t rank) const {
  int64_t losses = 0;
  for (const StepOrder& order : orders_) {
    if (order.rank == rank && order.step == step_ && !order.urgent)
      losses += std::ssize(order.losses);
  }
  return losses;
}

void StepWork::Extend(std::chrono::steady_clock::duration suspension) {
  for (StepOrder& order : orders_) order.given += suspension;
}

// Buffers of closed orders stay reserved while the sum may read them. Orders of the next step do
// not count: their gradients are written after this step has ended.
std::optional<uint32_t> StepWork::FreeBuffer(uint32_t rank, uint32_t buffers) const {
  std::vector<bool> taken(buffers);
  for (const StepOrder& order : orders_) {
    if (order.rank != rank || order.step != step_) continue;
    for (size_t i = 0; i < order.parts.size(); ++i) {
      if (order.open || order.parts[i].in_use) taken[order.buffer + i] = true;
    }
  }
  const auto found = std::ranges::find(taken, false);
  if (found == taken.end()) return std::nullopt;
  return static_cast<uint32_t>(found - taken.begin());
}

std::vector<bool> StepWork::Unassigned() const {
  std::vector<bool> unassigned(static_cast<size_t>(plan_.slices));
  for (size_t s = 0; s < unassigned.size(); ++s) {
    unassigned[s] = !arrived_.HasAll(static_cast<int64_t>(s));
  }
  for (const StepOrder& order : orders_) {
    if (!order.open || order.step != step_) continue;
    for (const StepOrder::Part& part : order.parts) {
      const Range slices = Covers(part.node, plan_.slices);
      for (int64_t s = slices.begin; s < slices.end; ++s)
        unassigned[static_cast<size_t>(s)] = false;
    }
  }
  return unassigned;
}

// Uses as few subtrees as possible. Suspected slices become separate pieces.
void StepWork::Collect(const TreeNode& node, const std::vector<bool>& unassigned,
                       const PoisonWatch& poison, std::vector<TreeNode>& pieces) const {
  const Range range = Covers(node, plan_.slices);
  int64_t count = 0;
  bool suspected = false;
  for (int64_t slice = range.begin; slice < range.end; ++slice) {
    count += unassigned[static_cast<size_t>(slice)] ? 1 : 0;
    suspected = suspected || poison.Suspects({WorkItem::Kind::kSlice, slice});
  }
  if (count == 0) return;
  if (node.level == 0 || (count == range.size() && !suspected && arrived_.IsWhole(node))) {
    pieces.push_back(node);
    return;
  }
  for (const uint32_t child : {2 * node.index, 2 * node.index + 1}) {
    Collect({node.level - 1, child}, unassigned, poison, pieces);
  }
}

// Makes at least as many pieces as there are helpers, if there are enough slices.
std::vector<TreeNode> StepWork::Pieces(const std::vector<bool>& unassigned,
                                       const PoisonWatch& poison, size_t helpers) const {
  std::vector<TreeNode> pieces;
  Collect(Root(plan_.slices), unassigned, poison, pieces);
  while (pieces.size() < helpers) {
    const auto largest = std::ranges::max_element(pieces, {}, &TreeNode::level);
    if (largest == pieces.end() || largest->level == 0) break;
    const TreeNode whole = *largest;
    pieces.erase(largest);
    for (const uint32_t child : {2 * whole.index, 2 * whole.index + 1}) {
      const TreeNode half{whole.level - 1, child};
      if (!Covers(half, plan_.slices).empty()) pieces.push_back(half);
    }
  }
  std::ranges::sort(pieces, {},
                    [&](const TreeNode& node) { return Covers(node, plan_.slices).begin; });
  return pieces;
}

}  // namespace muster
