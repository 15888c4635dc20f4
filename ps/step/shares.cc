#include "ps/step/shares.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "common/plan/split.h"
#include "ps/record/recent_times.h"

namespace muster {
namespace {

constexpr int kMostNamed = 12;

int64_t SamplesOf(const StepPlan& plan, const Batch& batch, const std::vector<Range>& shares) {
  int64_t samples = 0;
  for (const Range& share : shares) {
    samples += plan.Slice(batch, share.end - 1).end - plan.Slice(batch, share.begin).begin;
  }
  return samples;
}

std::string ReasonOf(const std::vector<uint32_t>& ranks, std::vector<double> times) {
  const auto slowest = std::ranges::max_element(times);
  const uint32_t rank = ranks[static_cast<size_t>(slowest - times.begin())];
  const double ms = *slowest;
  times.erase(slowest);
  if (times.empty()) return "";
  return fmt::format("rank {} takes {:.3g} ms per slice, the others {:.3g}", rank, ms,
                     Quantile(times, 0.5));
}

}  // namespace

void Shares::Begin(const StepPlan& plan, int64_t first_step, uint32_t workers) {
  plan_ = plan;
  policy_.Begin(first_step);
  assignment_ = AssignEvenly(plan.slices, workers);
  assignment_.nodes.resize(std::max<size_t>(workers, disturbed_until_.size()));
  assignment_.from_step = first_step;
  for (uint32_t rank = 0; rank < workers; ++rank) sharing_.push_back(rank);
  slices_ = EvenSizes(plan.slices, workers);
}

std::optional<events::SharesChanged> Shares::Divide(int64_t step,
                                                    const std::vector<uint32_t>& ranks,
                                                    bool by_slice) {
  std::optional<Division> division;
  if (ranks != sharing_) {
    division = AmongOthers(step, ranks);
  } else {
    division = Otherwise(step);
  }
  if (!division && by_slice == by_slice_) return std::nullopt;
  if (division) slices_ = std::move(division->slices);
  sharing_ = ranks;
  by_slice_ = by_slice;
  assignment_.from_step = step;
  const std::vector<std::vector<TreeNode>> each = NeighbouringShares(slices_, by_slice);
  assignment_.nodes.assign(assignment_.nodes.size(), {});
  for (size_t i = 0; i < sharing_.size(); ++i) assignment_.nodes[sharing_[i]] = each[i];
  return division ? division->change : std::nullopt;
}

// Ignores the first step of a division, which has no prefetched batches, and the last step of an
// epoch, which may be small.
void Shares::AddTimes(uint32_t rank, const wire::StepTimes& times) {
  if (!measured_ || rank >= disturbed_until_.size() || rank >= assignment_.ranks()) return;
  const int64_t step = times.step();
  if (step <= assignment_.from_step || step <= disturbed_until_[rank]) return;
  if (step >= plan_.total_steps) return;
  const Batch batch = plan_.At(step);
  const int64_t whole = std::min(plan_.global_batch, plan_.train_samples);
  const int64_t samples = SamplesOf(plan_, batch, assignment_.SlicesOf(rank));
  if (batch.samples < whole || samples == 0) return;
  const double slice = static_cast<double>(whole) / static_cast<double>(plan_.slices);
  times_.Add(rank, (times.compute_ms() + times.input_ms()) * slice / static_cast<double>(samples));
}

void Shares::Disturbed(uint32_t rank, int64_t step) {
  if (rank < disturbed_until_.size()) disturbed_until_[rank] = step;
}

// A worker that was reset reports no times, but its step takes at least this long.
void Shares::WasLate(uint32_t rank, double seconds, int64_t done) {
  constexpr double kHalf = 0.5;
  if (measured_) times_.Add(rank, 1e3 * seconds / std::max(static_cast<double>(done), kHalf));
}

Shares::Division Shares::AmongOthers(int64_t step, const std::vector<uint32_t>& ranks) {
  if (!measured_) return {.slices = EvenSizes(plan_.slices, ranks.size()), .change = {}};
  const std::vector<double> times = times_.OfEach(ranks);
  Division division{.slices = policy_.Divide(step, plan_.slices, times, ranks.size()),
                    .change = {}};
  const bool was_uneven = uneven_;
  uneven_ = division.slices != EvenSizes(plan_.slices, ranks.size());
  if (!uneven_ && !was_uneven) return division;
  division.change = Describe(step, ranks, division.slices, times);
  division.change->set_why(uneven_ ? ReasonOf(ranks, times) : "equal shares again");
  return division;
}

std::optional<Shares::Division> Shares::Otherwise(int64_t step) {
  if (!measured_ || sharing_.size() < 2 || !policy_.IsDue()) return std::nullopt;
  const std::vector<double> times = times_.OfEach(sharing_);
  if (times.empty()) return std::nullopt;
  const auto decision = policy_.Look(step, plan_.total_steps - step, slices_, times);
  times_.Renew();
  if (!decision) return std::nullopt;
  uneven_ = decision->slices != EvenSizes(plan_.slices, sharing_.size());
  Division division{.slices = decision->slices,
                    .change = Describe(step, sharing_, decision->slices, times)};
  for (int i = 0; i < division.change->shares_size(); ++i) {
    division.change->mutable_shares(i)->set_before(slices_[static_cast<size_t>(i)]);
  }
  division.change->set_busy_ms(decision->now_ms);
  division.change->set_why(decision->taken_back
                               ? "reverted, because the last change made steps longer"
                               : ReasonOf(sharing_, times));
  return division;
}

std::vector<double> Shares::TimesOf(const std::vector<uint32_t>& ranks) const {
  return uneven_ ? times_.OfEach(ranks) : std::vector<double>();
}

events::SharesChanged Shares::Describe(int64_t step, const std::vector<uint32_t>& ranks,
                                       const std::vector<int64_t>& slices,
                                       const std::vector<double>& times) {
  events::SharesChanged change;
  change.set_from_step(step);
  for (size_t i = 0; i < ranks.size(); ++i) {
    events::SharesChanged::Share& share = *change.add_shares();
    share.set_rank(ranks[i]);
    share.set_slices(slices[i]);
    if (!times.empty()) share.set_slice_ms(times[i]);
  }
  if (!times.empty()) change.set_expected_ms(Longest(slices, times));
  return change;
}

std::string TextOf(const events::SharesChanged& change) {
  std::string text = fmt::format("from step {} on: ", change.from_step());
  for (int i = 0; i < std::min(change.shares_size(), kMostNamed); ++i) {
    const events::SharesChanged::Share& share = change.shares(i);
    if (i > 0) text += ", ";
    text += fmt::format("rank {} {}{}", share.rank(), share.slices(), i == 0 ? " slices" : "");
    if (share.has_before()) {
      text += fmt::format(" ({}{})", i == 0 ? "before: " : "", share.before());
    }
  }
  if (change.shares_size() > kMostNamed) {
    text += fmt::format(" and {} more", change.shares_size() - kMostNamed);
  }
  if (!change.why().empty()) text += "; " + change.why();
  if (!change.has_expected_ms()) return text;
  text += fmt::format("; expected time of the slowest for compute and input: {:.3g} ms per step",
                      change.expected_ms());
  return change.has_busy_ms() ? text + fmt::format(", measured {:.3g}", change.busy_ms()) : text;
}

}  // namespace muster
