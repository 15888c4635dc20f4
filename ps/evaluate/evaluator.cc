#include "ps/evaluate/evaluator.h"

#include <algorithm>
#include <utility>

namespace muster {

void Evaluator::Plan(const StepPlan& plan, int64_t validation_samples, int64_t test_samples) {
  plan_ = plan;
  validation_samples_ = validation_samples;
  test_samples_ = test_samples;
}

bool Evaluator::IsDueAfter(int64_t step) const {
  const bool is_last = step + 1 == plan_.total_steps;
  return is_last ? SamplesOf(chooses()) > 0 && !settings_.skip_final() : IsRegularAfter(step);
}

bool Evaluator::IsRegularAfter(int64_t step) const {
  if (SamplesOf(chooses()) == 0) return false;
  const int64_t done = step + 1;
  const int64_t per_epoch = plan_.StepsPerEpoch();
  if (settings_.every_steps() > 0 && done % settings_.every_steps() == 0) return true;
  return settings_.every_epochs() > 0 && done % (per_epoch * settings_.every_epochs()) == 0;
}

std::vector<wire::Evaluate> Evaluator::Begin(int64_t version, wire::EvaluationSet set,
                                             std::vector<uint32_t> ranks, Time now,
                                             const std::vector<double>& times) {
  seen_images_.clear();
  evaluation_.emplace(version, set, SamplesOf(set), settings_.batch(), std::move(ranks), classes_,
                      settings_.confusion_matrix(), now, times);
  std::vector<wire::Evaluate> orders;
  for (const uint32_t rank : evaluation_->ranks()) {
    orders.push_back(OrderOf(evaluation_->BlocksOf(rank)));
  }
  return orders;
}

wire::Evaluate Evaluator::OrderOf(const Range& blocks) const {
  wire::Evaluate order;
  order.set_version(evaluation_->version());
  order.set_set(evaluation_->set());
  order.set_block_size(settings_.batch());
  order.set_block_begin(static_cast<uint32_t>(blocks.begin));
  order.set_block_end(static_cast<uint32_t>(blocks.end));
  order.set_average(settings_.use_ema());
  order.set_predictions(settings_.confusion_matrix());
  if (images_ > 0) order.set_images(images_);
  return order;
}

std::vector<std::pair<uint32_t, wire::Evaluate>> Evaluator::GiveUnassigned(
    const std::vector<uint32_t>& ranks, const std::function<Give(int64_t block)>& how, Time now) {
  std::vector<std::pair<uint32_t, wire::Evaluate>> orders;
  if (!evaluation_ || ranks.empty()) return orders;
  const auto give = [&](uint32_t rank, const Range& blocks) {
    evaluation_->Give(rank, blocks, now);
    orders.emplace_back(rank, OrderOf(blocks));
  };
  std::vector<int64_t> together, alone;
  for (const int64_t block : evaluation_->Unassigned()) {
    const Give way = how(block);
    if (way == Give::kWithOthers) together.push_back(block);
    if (way == Give::kAlone) alone.push_back(block);
  }
  const auto helpers = std::ssize(ranks);
  for (int64_t i = 0; i < helpers; ++i) {
    const Range part = EvenPart(std::ssize(together), helpers, i);
    for (int64_t next = part.begin; next < part.end;) {  // one order per contiguous range
      const int64_t first = together[static_cast<size_t>(next)];
      Range blocks{first, first + 1};
      while (++next < part.end && together[static_cast<size_t>(next)] == blocks.end) ++blocks.end;
      give(ranks[static_cast<size_t>(i)], blocks);
    }
  }
  if (alone.empty()) return orders;
  size_t given = 0;
  for (const uint32_t rank : ranks) {
    if (given == alone.size()) break;
    if (evaluation_->Owes(rank)) continue;
    give(rank, {alone[given], alone[given] + 1});
    ++given;
  }
  return orders;
}

bool Evaluator::Add(uint32_t rank, const wire::EvaluatedBlock& block, Time now) {
  if (!evaluation_ || !evaluation_->Add(rank, block, now)) return false;
  for (const wire::SampleImage& image : block.image()) {
    const bool in_block = image.index() >= 0 && image.index() / settings_.batch() == block.block();
    if (!in_block || seen_images_.size() >= images_) break;
    seen_images_.push_back({.index = image.index(),
                            .height = image.height(),
                            .width = image.width(),
                            .channels = image.channels(),
                            .pixels = image.pixels(),
                            .label = image.label(),
                            .predicted = image.predicted()});
  }
  return true;
}

std::vector<SampleImage> Evaluator::TakeImages() {
  std::ranges::sort(seen_images_, {}, &SampleImage::index);
  return std::exchange(seen_images_, {});
}

EvaluationResult Evaluator::Finish() {
  const EvaluationResult result = evaluation_->Result();
  const ConfusionMatrix* const matrix = evaluation_->confusion_matrix();
  // Outputs that are not finite predict no class, but the matrix cannot say that.
  matrix_csv_ = matrix != nullptr && result.finite() ? matrix->Csv(class_names_) : "";
  evaluation_.reset();
  return result;
}

}  // namespace muster
