#include "worker/relay/host_sums.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <memory>
#include <utility>

#include "common/link/wire_values.h"

namespace muster {
namespace {

TreeNode Parent(const TreeNode& node) { return {node.level + 1, node.index / 2}; }

// Long for a round of small gradients, even on a busy host.
constexpr std::chrono::milliseconds kLeastWait{500};

// As many values as fit into the L1 cache several times.
constexpr size_t kBlock = 1024;

void AddValues(WireType, const float* a, const float* b, float* to, size_t count) {
  for (size_t i = 0; i < count; ++i) to[i] = a[i] + b[i];
}
void AddValues(WireType type, const uint16_t* a, const uint16_t* b, uint16_t* to, size_t count) {
  std::array<float, kBlock> sum;
  AddHalves(type, a, b, sum.data(), count);
  (void)Narrow(type, std::span(sum).first(count), to);
}

}  // namespace

void HostSums::Ordered(uint32_t via, uint32_t rank, const wire::Train& train) {
  // Gradients of older steps have been delivered, or nobody waits for them.
  steps_.erase(steps_.begin(), steps_.lower_bound(train.step() - 1));
  // Work that was taken over is urgent, and nobody else computes its neighbours at this moment.
  Step& step = steps_[train.step()];
  if (train.urgent() || train.chunk_size() > 0 || step.is_planned) return;
  uint32_t buffer = train.buffer();
  for (const wire::Subtree& subtree : train.subtree()) {
    step.leaves.push_back({via, rank, train.order(), NodeOf(subtree), buffer++});
  }
}

// Joins neighbours until no two of them make up a larger subtree.
void HostSums::Plan(Step& step, Time now) {
  step.is_planned = true;
  // An evaluation or a lost worker between two steps does not make the usual one long.
  if (planned_at_) {
    usual_step_ = std::min(now - *planned_at_, std::max<Duration>(kLeastWait, 2 * usual_step_));
  }
  planned_at_ = now;
  for (const Leaf& leaf : step.leaves) step.groups.push_back({.node = leaf.node, .leaves = {leaf}});
  const uint32_t root = Root(slices_).level;
  for (uint32_t level = 0; level < root; ++level) {
    std::vector<Group> joined;
    for (Group& group : step.groups) {
      if (group.node.level != level || group.node.index % 2 != 0) continue;
      const TreeNode sibling{level, group.node.index + 1};
      const auto other = std::ranges::find(step.groups, sibling, &Group::node);
      const bool alone = Covers(sibling, slices_).empty();
      if (!alone && other == step.groups.end()) continue;
      Group both{.node = Parent(group.node), .leaves = group.leaves};
      if (!alone) std::ranges::copy(other->leaves, std::back_inserter(both.leaves));
      joined.push_back(std::move(both));
    }
    for (Group& both : joined) {
      std::erase_if(step.groups, [&](const Group& group) {
        return group.node.level == level && Parent(group.node) == both.node;
      });
      step.groups.push_back(std::move(both));
    }
  }
  std::erase_if(step.groups, [](const Group& group) { return group.leaves.size() < 2; });
}

bool HostSums::Leaf::Is(uint32_t its_rank, const auto& named) const {
  return rank == its_rank && order == named.order() && node == NodeOf(named.subtree()) &&
         buffer == named.buffer();
}

// The server drops a sum if it would drop one of its gradients alone, so such a one must not be
// added: the others would be lost with it.
std::optional<HostSums::Part> HostSums::Place(const Group& group, RelayedGradient& gradient) {
  const wire::GradientPart& message = gradient.message.gradient_part();
  const uint32_t via = gradient.message.via(), rank = gradient.message.address().rank();
  const auto first = std::ranges::find_if(group.leaves, [&](const Leaf& leaf) {
    if (leaf.via != via) return false;
    return message.added_size() > 0 ? leaf.Is(rank, message.added(0)) : leaf.Is(rank, message);
  });
  const auto count = static_cast<size_t>(std::max(1, message.added_size()));
  const auto at = static_cast<size_t>(first - group.leaves.begin());
  if (at + count > group.leaves.size()) return std::nullopt;
  for (size_t i = 1; i < count; ++i) {
    const wire::AddedPart& added = message.added(static_cast<int>(i));
    if (!group.leaves[at + i].Is(added.rank(), added)) return std::nullopt;
  }
  return Part{.first_leaf = at, .leaves = count, .gradient = std::move(gradient)};
}

std::vector<RelayedGradient> HostSums::Add(RelayedGradient gradient, Time now) {
  const uint32_t chunk = gradient.message.gradient_part().chunk();
  const auto step = steps_.find(gradient.message.gradient_part().step());
  std::vector<RelayedGradient> sent;
  if (step != steps_.end()) {
    if (!step->second.is_planned) Plan(step->second, now);
    for (Group& group : step->second.groups) {
      if (!group.open) continue;
      std::optional<Part> part = Place(group, gradient);
      if (!part) continue;
      const bool late = part->gradient.message.gradient_part().late();
      Parts& arrived = group.arrived[chunk];
      const auto after = std::ranges::find_if(arrived.parts, [&](const Part& other) {
        return other.first_leaf + other.leaves > part->first_leaf;
      });
      if (after != arrived.parts.end() && after->first_leaf < part->first_leaf + part->leaves) {
        return sent;  // a repetition
      }
      if (group.begun == Time()) group.begun = now;
      group.progress = now;
      arrived.parts.insert(after, std::move(*part));
      size_t leaves = 0;
      for (const Part& one : arrived.parts) leaves += one.leaves;
      arrived.added = leaves == group.leaves.size();
      if (arrived.added) {
        sent.push_back(Sum(group, arrived));
      } else if (late) {  // a relay below has waited long enough
        return Release(group);
      }
      return sent;
    }
  }
  sent.push_back(std::move(gradient));
  return sent;
}

RelayedGradient HostSums::Sum(const Group& group, const Parts& arrived) const {
  const RelayedGradient& first = arrived.parts[0].gradient;
  RelayedGradient sum{.message = {}, .payload = SumOf(group, arrived)};
  *sum.message.mutable_address() = first.message.address();
  sum.message.set_via(first.message.via());
  wire::GradientPart& message = *sum.message.mutable_gradient_part();
  message.set_step(first.message.gradient_part().step());
  message.set_chunk(first.message.gradient_part().chunk());
  *message.mutable_subtree() = SubtreeOf(group.node);
  if (sum.payload.owner == nullptr) message.set_empty(true);
  for (const Part& part : arrived.parts) {
    const wire::GradientPart& one = part.gradient.message.gradient_part();
    message.mutable_added()->MergeFrom(one.added());
    if (one.added_size() > 0) continue;
    wire::AddedPart& added = *message.add_added();
    added.set_rank(part.gradient.message.address().rank());
    added.set_order(one.order());
    *added.mutable_subtree() = one.subtree();
    added.set_buffer(one.buffer());
  }
  return sum;
}

template <typename T>
const T* HostSums::AddBelow(const TreeNode& node, const Parts& arrived, size_t place,
                            const auto& values, const auto& add) const {
  const auto part = std::ranges::find_if(arrived.parts, [&](const Part& one) {
    return NodeOf(one.gradient.message.gradient_part().subtree()) == node;
  });
  if (part != arrived.parts.end()) return values(part->gradient);
  if (node.level == 0 || Covers(node, slices_).empty()) return nullptr;
  const TreeNode first{node.level - 1, 2 * node.index}, second{node.level - 1, 2 * node.index + 1};
  const T* const left = AddBelow<T>(first, arrived, place, values, add);
  if (left == nullptr) return AddBelow<T>(second, arrived, place, values, add);
  const T* const right = AddBelow<T>(second, arrived, place + 1, values, add);
  return right == nullptr ? left : add(left, right, place);
}

Payload HostSums::SumOf(const Group& group, const Parts& arrived) const {
  size_t bytes = 0;
  bool all_in_gpus = true, any_in_gpu = false;
  for (const Part& part : arrived.parts) {
    const Payload& payload = part.gradient.payload;
    if (payload.bytes == 0) continue;
    bytes = payload.bytes;  // all have the same size
    const bool in_gpu = gpus_ != nullptr && gpus_->Find(part.gradient) != nullptr;
    all_in_gpus &= in_gpu;
    any_in_gpu |= in_gpu;
  }
  if (bytes == 0) return {};
  if (any_in_gpu && all_in_gpus) return SumInGpus(group, arrived, bytes);
  if (type_ != wire::FP32) return SumOnHost<uint16_t>(group, arrived, bytes);
  if (!any_in_gpu) return SumOnHost<float>(group, arrived, bytes);
  Parts on_host = arrived;  // a worker without a GPU has its gradient there
  for (Part& part : on_host.parts) gpus_->Bring(part.gradient);
  return SumOnHost<float>(group, on_host, bytes);
}

template <typename T>
Payload HostSums::SumOnHost(const Group& group, const Parts& arrived, size_t bytes) const {
  const auto has_values = [](const Part& part) { return part.gradient.payload.bytes > 0; };
  if (std::ranges::count_if(arrived.parts, has_values) == 1) {
    return std::ranges::find_if(arrived.parts, has_values)->gradient.payload;
  }
  const size_t all = bytes / sizeof(T);
  const auto sum = std::make_shared_for_overwrite<T[]>(all);
  std::vector<T> further(Root(slices_).level * kBlock);  // places from 1 on
  for (size_t at = 0; at < all; at += kBlock) {
    const size_t count = std::min(kBlock, all - at);
    T* const to = sum.get() + at;
    const T* const block = AddBelow<T>(
        group.node, arrived, 0,
        [at](const RelayedGradient& one) {
          const auto* const values = static_cast<const T*>(one.payload.data);
          return values == nullptr ? nullptr : values + at;
        },
        [&](const T* left, const T* right, size_t place) {
          T* const place_of_sum = place == 0 ? to : further.data() + (place - 1) * kBlock;
          AddValues(type_, left, right, place_of_sum, count);
          return place_of_sum;
        });
    if (block != to) std::copy_n(block, count, to);
  }
  return {.data = sum.get(), .bytes = all * sizeof(T), .owner = sum};
}

Payload HostSums::SumInGpus(const Group& group, const Parts& arrived, size_t bytes) const {
  const size_t count = bytes / sizeof(float);
  const float* const sum = AddBelow<float>(
      group.node, arrived, 0, [&](const RelayedGradient& one) { return gpus_->Find(one); },
      [&](const float* left, const float* right, size_t place) {
        return gpus_->adder().Add(left, right, count, place);
      });
  std::shared_ptr<const float> values = gpus_->adder().Bring(sum, count);
  return {.data = values.get(), .bytes = bytes, .owner = values};
}

// On a slow network, gradients trickle in from another host for nearly as long as a step takes. A
// pause shows that someone is late, and so does a longer trickle. Both limits are lower than that
// at which the server resets slow workers (ps/run/late_workers.h), which is at least a second and
// two usual steps.
std::vector<RelayedGradient> HostSums::TakeLate(Time now) {
  const Duration pause = std::max<Duration>(kLeastWait, usual_step_ / 4);
  const Duration whole = std::max<Duration>(kLeastWait, usual_step_ + usual_step_ / 4);
  std::vector<RelayedGradient> sent;
  for (auto& [number, step] : steps_) {
    for (Group& group : step.groups) {
      const bool waits =
          std::ranges::any_of(group.arrived, [](const auto& chunk) { return !chunk.second.added; });
      if (!waits || (now - group.progress <= pause && now - group.begun <= whole)) continue;
      std::ranges::move(Release(group), std::back_inserter(sent));
    }
  }
  return sent;
}

std::vector<RelayedGradient> HostSums::Release(Group& group) {
  group.open = false;
  std::vector<RelayedGradient> sent;
  for (auto& [chunk, arrived] : group.arrived) {
    if (arrived.added) continue;
    for (Part& part : arrived.parts) {
      part.gradient.message.mutable_gradient_part()->set_late(true);
      sent.push_back(std::move(part.gradient));
    }
  }
  std::erase_if(group.arrived, [](const auto& chunk) { return !chunk.second.added; });
  return sent;
}

std::vector<RelayedGradient> HostSums::Close(uint32_t via) {
  std::vector<RelayedGradient> sent;
  const auto is_closed = [via](const Leaf& leaf) { return leaf.via == via; };
  for (auto& [number, step] : steps_) {
    std::erase_if(step.leaves, is_closed);
    for (Group& group : step.groups) {
      if (std::ranges::none_of(group.leaves, is_closed)) continue;
      group.open = false;
      for (auto& [chunk, arrived] : group.arrived) {
        for (Part& part : arrived.parts) {
          const auto first = group.leaves.begin() + static_cast<ptrdiff_t>(part.first_leaf);
          if (std::any_of(first, first + static_cast<ptrdiff_t>(part.leaves), is_closed)) continue;
          sent.push_back(std::move(part.gradient));
        }
      }
      group.arrived.clear();
    }
  }
  return sent;
}

void HostSums::Forget(int64_t step, uint32_t chunk) {
  const auto found = steps_.find(step);
  if (found == steps_.end()) return;
  for (Group& group : found->second.groups) group.arrived.erase(chunk);
}

}  // namespace muster
