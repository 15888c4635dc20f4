#include "ps/record/replay.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <span>

#include "common/base/text.h"
#include "ps/record/checkpoint_arenas.h"

namespace muster {
namespace {

int64_t CountDifferent(std::span<const float> a, std::span<const float> b) {
  int64_t count = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i])) ++count;
  }
  return count;
}

std::string NameOf(const CheckpointReader& kept) {
  return std::filesystem::path(kept.folder()).filename();
}

// The first tensor that differs, or "".
std::string TensorDifference(const CheckpointReader& kept, int64_t step, Variables& variables) {
  const std::vector<std::string> names = CheckpointArenaNames(variables);
  const std::vector<std::span<float>> arenas = CheckpointArenas(variables, step);
  std::vector<float> then;
  for (size_t i = 0; i < names.size(); ++i) {
    for (const Variable& variable : variables.layout().variables()) {
      const std::string tensor = names[i] + "." + variable.name;
      const std::span<const float> now = arenas[i].subspan(variable.offset, variable.count);
      then.resize(variable.count);
      kept.Read(tensor, then);
      if (std::memcmp(now.data(), then.data(), now.size_bytes()) == 0) continue;
      return fmt::format("{}, {} of {} values", tensor, FormatCount(CountDifferent(now, then)),
                         FormatCount(std::ssize(now)));
    }
  }
  return "";
}

std::string BytesOf(checkpoint::Sums sums) {
  sums.clear_seconds();  // differs in every run
  return sums.SerializeAsString();
}

// Returns what differs besides the tensors, or "".
std::string StateDifference(const checkpoint::State& kept, const checkpoint::State& now) {
  if (kept.updates() != now.updates()) {
    return fmt::format("{} updates before, {} now", kept.updates(), now.updates());
  }
  if (kept.skipped_in_a_row() != now.skipped_in_a_row()) {
    return fmt::format("{} skipped steps in a row before, {} now", kept.skipped_in_a_row(),
                       now.skipped_in_a_row());
  }
  if (kept.loss_scale() != now.loss_scale() ||
      kept.loss_scale_good_steps() != now.loss_scale_good_steps()) {
    return fmt::format("loss scale {:g} for {} steps before, {:g} for {} now", kept.loss_scale(),
                       kept.loss_scale_good_steps(), now.loss_scale(), now.loss_scale_good_steps());
  }
  if (BytesOf(kept.progress().total()) != BytesOf(now.progress().total())) {
    return "the sums of samples and losses";
  }
  // Decisions are comparable only if both states were saved before the evaluation, or both after
  // it. An evaluation at the end of a run is no longer due if the run was extended.
  if (kept.evaluated() != now.evaluated()) return "";
  if (kept.decisions().SerializeAsString() == now.decisions().SerializeAsString()) return "";
  return "the decisions from evaluations";
}

}  // namespace

int64_t Replay::LastStep(int64_t total_steps) const {
  return is_on() ? std::min(kept_.back()->state().step(), total_steps) : total_steps;
}

std::string Replay::Compare(const checkpoint::State& now, Variables& variables, bool is_end) {
  for (; IsDue(now.step()); ++same_) {
    const CheckpointReader& kept = *kept_[same_];
    std::string what = TensorDifference(kept, now.step(), variables);
    if (what.empty()) what = StateDifference(kept.state(), now);
    if (what.empty()) continue;
    const std::string arithmetic = ArithmeticChange(kept.state().arithmetic(), now.arithmetic());
    difference_ = fmt::format("step {}: differs from checkpoint {}: {}{}", FormatCount(now.step()),
                              NameOf(kept), what,
                              arithmetic.empty() ? "" : "; possible cause: " + arithmetic);
    return difference_;
  }
  if (!is_end || over()) return "";
  const std::string& why = now.progress().stop_reason();
  difference_ =
      fmt::format("step {}: the replay ended before checkpoint {}{}{}", FormatCount(now.step()),
                  NameOf(*kept_[same_]), why.empty() ? "" : ": ", why);
  return difference_;
}

void Replay::Put(events::Summary& summary) const {
  if (!is_on()) return;
  events::Replayed& replayed = *summary.mutable_replayed();
  replayed.set_same(static_cast<int64_t>(same_));
  replayed.set_tensors(kept_.back()->state().tensors().tensor_size());
  replayed.set_difference(difference_);
}

}  // namespace muster
