#include "ps/evaluate/evaluation.h"

#include <algorithm>
#include <utility>

#include "common/link/wire_values.h"
#include "common/plan/split.h"

namespace muster {

const char* SetName(wire::EvaluationSet set) {
  return set == wire::VALIDATION ? "validation" : "test";
}

Evaluation::Evaluation(int64_t version, wire::EvaluationSet set, int64_t samples,
                       int64_t block_size, std::vector<uint32_t> ranks, int64_t classes,
                       bool predictions, Time now, const std::vector<double>& times)
    : version_(version),
      set_(set),
      ranks_(std::move(ranks)),
      sums_(samples, block_size, classes, predictions),
      owners_(static_cast<size_t>(sums_.blocks()), kNobody),
      unassigned_(sums_.blocks()),
      last_progress_(now),
      last_given_(now) {
  int64_t begin = 0;
  for (const int64_t size :
       times.empty() ? EvenSizes(blocks(), ranks_.size()) : SplitByTime(blocks(), times)) {
    shares_.push_back({begin, begin + size});
    begin += size;
  }
  for (const uint32_t rank : ranks_) Give(rank, BlocksOf(rank), now);
}

Range Evaluation::BlocksOf(uint32_t rank) const {
  const auto found = std::ranges::lower_bound(ranks_, rank);
  if (found == ranks_.end() || *found != rank) return {};
  return shares_[static_cast<size_t>(found - ranks_.begin())];
}

void Evaluation::Give(uint32_t rank, const Range& blocks, Time now) {
  for (int64_t b = blocks.begin; b < blocks.end; ++b) owners_[static_cast<size_t>(b)] = rank;
  owed_[rank] += blocks.size();
  unassigned_ -= blocks.size();
  last_given_ = now;
}

int64_t Evaluation::Drop(uint32_t rank) {
  std::ranges::replace(owners_, rank, kNobody);
  const int64_t dropped = std::exchange(owed_[rank], 0);
  unassigned_ += dropped;
  return dropped;
}

std::vector<int64_t> Evaluation::Unassigned() const {
  return unassigned_ > 0 ? AssignedTo(kNobody) : std::vector<int64_t>();
}

std::vector<int64_t> Evaluation::AssignedTo(uint32_t rank) const {
  std::vector<int64_t> assigned;
  for (int64_t b = 0; b < blocks(); ++b) {
    if (!sums_.Has(b) && owners_[static_cast<size_t>(b)] == rank) assigned.push_back(b);
  }
  return assigned;
}

bool Evaluation::Owes(uint32_t rank) const {
  const auto owed = owed_.find(rank);
  return owed != owed_.end() && owed->second > 0;
}

std::vector<uint32_t> Evaluation::OwingRanks() const {
  std::vector<uint32_t> ranks;
  for (const auto& [rank, blocks] : owed_) {
    if (blocks > 0) ranks.push_back(rank);
  }
  return ranks;
}

bool Evaluation::Add(uint32_t rank, const wire::EvaluatedBlock& block, Time now) {
  const int64_t number = block.block();
  if (block.version() != version_ || block.set() != set_ || number >= blocks()) return false;
  if (owners_[static_cast<size_t>(number)] != rank || sums_.Has(number)) return false;
  const std::optional<ScalarSums> scalars = ScalarsOf(block.scalar(), block.samples());
  if (!scalars) return false;
  const auto added = sums_.Add(
      number, {.samples = block.samples(),
               .loss = block.loss(),
               .correct = block.correct(),
               .metrics = {block.metric().data(), static_cast<size_t>(block.metric_size())},
               .labels = {block.label().data(), static_cast<size_t>(block.label_size())},
               .predicted = {block.predicted().data(), static_cast<size_t>(block.predicted_size())},
               .scalars = *scalars});
  if (added != EvaluationSums::Added::kNew) return false;
  --owed_[rank];
  // A short last block says nothing about the time of the others.
  if (block.samples() == sums_.SamplesOf(0).size())
    longest_gap_ = std::max(longest_gap_, now - last_progress_);
  last_progress_ = now;
  return true;
}

EvaluationResult Evaluation::Result() const {
  EvaluationScores scores = sums_.Scores();
  return {set_, version_, scores.loss, scores.accuracy, std::move(scores.scalars)};
}

}  // namespace muster
