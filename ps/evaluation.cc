#include "ps/evaluation.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "common/plan/split.h"

namespace muster {

const char* SetName(wire::EvaluationSet set) {
  return set == wire::VALIDATION ? "validation" : "test";
}

Evaluation::Evaluation(int64_t version, wire::EvaluationSet set, int64_t samples,
                       int64_t block_size, std::vector<uint32_t> ranks, int64_t classes,
                       bool predictions, const std::vector<double>& times)
    : version_(version),
      set_(set),
      samples_(samples),
      block_size_(block_size),
      ranks_(std::move(ranks)),
      classes_(classes),
      results_(static_cast<size_t>((samples + block_size - 1) / block_size)),
      owners_(results_.size()) {
  int64_t begin = 0;
  for (const int64_t size :
       times.empty() ? EvenSizes(blocks(), ranks_.size()) : SplitByTime(blocks(), times)) {
    shares_.push_back({begin, begin + size});
    begin += size;
  }
  for (const uint32_t rank : ranks_) Give(rank, BlocksOf(rank));
  if (predictions) matrix_.emplace(classes);
}

Range Evaluation::BlocksOf(uint32_t rank) const {
  const auto found = std::ranges::find(ranks_, rank);
  if (found == ranks_.end()) return {};
  return shares_[static_cast<size_t>(found - ranks_.begin())];
}

void Evaluation::Give(uint32_t rank, const Range& blocks) {
  for (int64_t b = blocks.begin; b < blocks.end; ++b) {
    const auto i = static_cast<size_t>(b);
    if (!owners_[i].insert(rank).second) continue;
    ++to_bring_[rank];
    if (!results_[i].present) ++missing_[rank];
  }
  last_given_ = std::chrono::steady_clock::now();
}

int64_t Evaluation::Drop(uint32_t rank) {
  for (std::set<uint32_t>& owners : owners_) owners.erase(rank);
  const int64_t missing = missing_[rank];
  missing_.erase(rank);
  to_bring_.erase(rank);
  late_.erase(rank);
  return missing;
}

std::vector<int64_t> Evaluation::MissingOf(uint32_t rank) const {
  std::vector<int64_t> missing;
  for (int64_t b = 0; b < blocks(); ++b) {
    const auto i = static_cast<size_t>(b);
    if (!results_[i].present && owners_[i].contains(rank)) missing.push_back(b);
  }
  return missing;
}

Range Evaluation::SamplesOf(int64_t block) const {
  return {block * block_size_, std::min((block + 1) * block_size_, samples_)};
}

std::vector<int64_t> Evaluation::Orphans() const {
  std::vector<int64_t> orphans;
  for (int64_t b = 0; b < blocks(); ++b) {
    const auto i = static_cast<size_t>(b);
    if (!results_[i].present && std::ranges::includes(late_, owners_[i])) orphans.push_back(b);
  }
  return orphans;
}

Evaluation::Added Evaluation::Add(uint32_t rank, const wire::EvaluatedBlock& block) {
  const int64_t number = block.block(), samples = block.samples();
  if (block.version() != version_ || block.set() != set_) return Added::kUnexpected;
  if (number >= blocks()) return Added::kUnexpected;
  std::set<uint32_t>& owners = owners_[static_cast<size_t>(number)];
  if (!owners.contains(rank)) return Added::kUnexpected;
  if (samples != SamplesOf(number).size()) return Added::kUnexpected;
  if (block.correct() < 0 || block.correct() > samples) return Added::kUnexpected;
  if (block.correct_top5() < 0 || block.correct_top5() > samples) return Added::kUnexpected;
  Block& result = results_[static_cast<size_t>(number)];
  if (!result.present && matrix_) {
    if (block.label_size() != samples) return Added::kUnexpected;
    if (!matrix_->Add(block.label(), block.predicted())) return Added::kUnexpected;
  }
  if (!result.present) {
    for (const uint32_t owner : owners) --missing_[owner];
  }
  owners.erase(rank);
  if (--to_bring_[rank] == 0) late_.erase(rank);
  if (result.present) return Added::kHere;
  result = {true, block.loss(), block.correct(), block.correct_top5()};
  ++done_;
  const auto now = std::chrono::steady_clock::now();
  longest_gap_ = std::max(longest_gap_, now - last_progress_);
  last_progress_ = now;
  return Added::kNew;
}

std::vector<uint32_t> Evaluation::MissingRanks() const {
  std::vector<uint32_t> ranks;
  for (const auto& [rank, blocks] : missing_) {
    if (blocks > 0) ranks.push_back(rank);
  }
  return ranks;
}

EvaluationResult Evaluation::Result() const {
  double loss = 0;
  int64_t correct = 0, correct_top5 = 0;
  for (const Block& block : results_) {
    loss += block.loss;
    correct += block.correct;
    correct_top5 += block.correct_top5;
  }
  const double n = static_cast<double>(samples_);
  EvaluationResult result{.set = set_,
                          .version = version_,
                          .loss = loss / n,
                          .accuracy = static_cast<double>(correct) / n};
  if (classes_ == 1) result.accuracy = std::isnan(result.loss) ? -HUGE_VAL : -result.loss;
  if (classes_ > 5) result.top5_accuracy = static_cast<double>(correct_top5) / n;
  return result;
}

}  // namespace muster
