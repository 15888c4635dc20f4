#include "common/link/gradient_check.h"

#include <fmt/core.h>

#include "common/link/wire_values.h"

namespace muster {
namespace {

// The slices below a subtree. Empty if there is no such subtree.
Range SlicesOf(const wire::Subtree& subtree, const StepPlan& plan) {
  if (subtree.level() > Root(plan.slices).level) return {};
  return Covers(NodeOf(subtree), plan.slices);
}

bool AddUp(const wire::GradientPart& sum, const StepPlan& plan) {
  const Range whole = SlicesOf(sum.subtree(), plan);
  int64_t end = whole.begin;
  for (const wire::AddedPart& added : sum.added()) {
    const Range slices = SlicesOf(added.subtree(), plan);
    if (slices.empty() || slices.begin != end) return false;
    end = slices.end;
  }
  return end == whole.end;
}

}  // namespace

std::string CheckGradient(const wire::GradientPart& part, uint32_t sender, const StepPlan& plan,
                          const std::function<bool(uint32_t rank)>& is_behind) {
  if (part.step() < 0 || part.step() >= plan.total_steps) {
    return fmt::format("a gradient for step {} of {}", part.step(), plan.total_steps);
  }
  const Range slices = SlicesOf(part.subtree(), plan);
  const std::string subtree =
      fmt::format("subtree {}.{}", part.subtree().level(), part.subtree().index());
  if (slices.empty()) return subtree + ", which has no slices";
  if (part.added_size() > 0) {
    if (!AddUp(part, plan)) {
      return fmt::format("a sum of {} gradients that do not make up {}", part.added_size(),
                         subtree);
    }
    // The sender has an order, too. Otherwise nobody would be lost with what it sends.
    if (part.added(0).rank() != sender) {
      return fmt::format("a sum that begins with a gradient of rank {}", part.added(0).rank());
    }
    for (const wire::AddedPart& added : part.added()) {
      if (is_behind(added.rank())) continue;
      return fmt::format("a sum with a gradient of rank {}, which has another connection",
                         added.rank());
    }
  }
  // Without values a gradient counts as zero.
  if (!part.empty()) return "";
  const Batch batch = plan.At(part.step());
  const int64_t samples =
      plan.Slice(batch, slices.end - 1).end - plan.Slice(batch, slices.begin).begin;
  return samples == 0 ? "" : fmt::format("{} with {} samples is marked as empty", subtree, samples);
}

std::string CheckTimes(const wire::StepTimes& times) {
  constexpr double kMost = 1e9;  // more milliseconds than any deadline, and watts
  for (const double value : {times.compute_ms(), times.input_ms(), times.push_ms(), times.wait_ms(),
                             times.pull_ms(), times.gpu_power_w()}) {
    if (!(value >= 0 && value <= kMost)) return fmt::format("times of a step with {}", value);
  }
  return "";
}

}  // namespace muster
