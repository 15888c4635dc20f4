#include "ps/progress.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace muster {
namespace {

double Seconds(Progress::Clock::duration d) { return std::chrono::duration<double>(d).count(); }

void PutParts(Progress::Json& json, const StepParts& parts) {
  json["compute_ms"] = parts.compute_ms;
  json["input_ms"] = parts.input_ms;
  json["push_ms"] = parts.push_ms;
  json["wait_ms"] = parts.wait_ms;
  json["pull_ms"] = parts.pull_ms;
}

}  // namespace

double Progress::Sums::StepMs() const {
  if (balance.steps > 0) return balance.step_ms / static_cast<double>(balance.steps);
  return 1e3 * seconds / static_cast<double>(std::max<int64_t>(steps, 1));
}

StepParts Progress::Sums::Parts() const {
  return balance.steps > 0 ? balance.parts.Over(static_cast<double>(balance.steps)) : times.Mean();
}

double Progress::Sums::WaitingShare() const {
  const StepParts parts = Parts();
  const double waiting = parts.push_ms + parts.wait_ms + parts.pull_ms;
  const double all = parts.compute_ms + parts.input_ms + waiting;
  return all > 0 ? waiting / all : 0;
}

void Progress::Sums::PutShares(Json& json) const {
  if (balance.steps == 0) return;
  json["overhead_share"] = balance.Share(balance.overhead_ms);
  json["input_share"] = balance.Share(balance.input_ms);
  json["imbalance_share"] = balance.Share(balance.imbalance_ms);
}

void Progress::Sums::PutLoss(Json& json) const {
  if (samples > 0 && samples == skipped_samples) {
    json["train_loss"] = json["train_accuracy"] = nullptr;
    return;
  }
  const double n = static_cast<double>(std::max<int64_t>(samples - skipped_samples, 1));
  json["train_loss"] = loss / n;
  json["train_accuracy"] = static_cast<double>(correct) / n;
}

void Progress::Sums::Put(Json& json) const {
  PutLoss(json);
  json["images_per_second"] = ImagesPerSecond();
  json["step_ms"] = StepMs();
  json["timed_steps"] = balance.steps;
  PutParts(json, Parts());
  json["waiting_share"] = WaitingShare();
  PutShares(json);
  json["skipped_steps"] = skipped_steps;
}

void Progress::Times::Add(const wire::StepTimes& times) {
  ++reports;
  parts.Add(PartsOf(times));
}

StepParts Progress::Times::Mean() const {
  return parts.Over(static_cast<double>(std::max<int64_t>(reports, 1)));
}

void Progress::Begin(const StepPlan& plan, uint32_t workers) {
  plan_ = plan;
  ranks_.assign(workers, {});
  balances_ = StepBalances(workers);
  step_began_ = Clock::now();
}

void Progress::EndStep(const StepLosses& losses, double learning_rate, bool skipped) {
  const Clock::time_point now = Clock::now();
  const double seconds = Seconds(now - step_began_);
  step_began_ = now;
  learning_rate_ = learning_rate;
  constexpr size_t kRecent = 101;
  if (recent_seconds_.size() < kRecent) {
    recent_seconds_.push_back(seconds);
  } else {
    recent_seconds_[static_cast<size_t>(total_.steps) % kRecent] = seconds;
  }
  AddBalance(balances_.EndStep(total_.steps, after_evaluation_ ? 0 : seconds));
  after_evaluation_ = false;
  for (Sums* sums : {&total_, &since_log_, &since_live_}) {
    ++sums->steps;
    sums->samples += losses.batch().samples;
    sums->seconds += seconds;
    if (skipped) {
      ++sums->skipped_steps;
      sums->skipped_samples += losses.batch().samples;
      continue;
    }
    sums->correct += losses.Correct();
    sums->loss += losses.Loss();
  }
}

void Progress::AddTimes(uint32_t rank, const wire::StepTimes& times) {
  for (Sums* sums : {&total_, &since_log_, &since_live_}) sums->times.Add(times);
  if (rank < ranks_.size()) ranks_[rank].Add(times);
  AddBalance(balances_.AddTimes(times));
}

void Progress::AddBalance(const std::optional<StepBalance>& step) {
  if (!step) return;
  for (Sums* sums : {&total_, &since_log_, &since_live_}) sums->balance.Add(*step);
}

void Progress::BeginEvaluation() { evaluation_began_ = Clock::now(); }

void Progress::EndEvaluation(const EvaluationResult& result) {
  step_began_ = Clock::now();  // no step can end before its workers are done evaluating
  after_evaluation_ = true;
  evaluation_seconds_ += Seconds(step_began_ - evaluation_began_);
  if (!evaluated_ || result.accuracy > best_accuracy_) {
    best_accuracy_ = result.accuracy;
    best_step_ = result.version;
  }
  evaluated_ = result;
}

double Progress::MedianStep() const {
  if (recent_seconds_.empty()) return 0;
  std::vector<double> sorted = recent_seconds_;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

double Progress::Elapsed() const { return Seconds(Clock::now() - process_began_); }

double Progress::Epoch() const {
  return plan_.train_samples > 0
             ? static_cast<double>(total_.samples) / static_cast<double>(plan_.train_samples)
             : 0;
}

void Progress::PutPosition(Json& json) const {
  json["elapsed_s"] = Elapsed();
  json["step"] = total_.steps;
  json["samples"] = total_.samples;
  json["epoch"] = Epoch();
}

void Progress::PutEvaluation(Json& json) const {
  json["test_accuracy"] = evaluated_->accuracy;
  if (evaluated_->top5_accuracy) json["test_top5_accuracy"] = *evaluated_->top5_accuracy;
  json["test_loss"] = evaluated_->loss;
}

// The mean times of each rank.
void Progress::PutRanks(Json& json) const {
  if (ranks_.empty()) return;
  Json ranks = Json::array();
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    Json one;
    one["rank"] = rank;
    PutParts(one, ranks_[rank].Mean());
    ranks.push_back(std::move(one));
  }
  json["ranks"] = std::move(ranks);
}

Progress::Json Progress::LogLine() {
  Json json;
  PutPosition(json);
  json["learning_rate"] = learning_rate_;
  since_log_.Put(json);
  last_log_ = since_log_;
  since_log_ = {};
  return json;
}

Progress::Json Progress::EvaluationLine() const {
  Json json;
  PutPosition(json);
  json["learning_rate"] = learning_rate_;
  (since_log_.steps > 0 ? since_log_ : last_log_).Put(json);
  PutEvaluation(json);
  return json;
}

double Progress::RemainingSeconds() const {
  const double done = static_cast<double>(total_.samples);
  const double all = static_cast<double>(plan_.At(plan_.total_steps).samples_before);
  return done > 0 ? (total_.seconds + evaluation_seconds_) * (all - done) / done : 0;
}

Progress::Json Progress::LiveLine() {
  Json json;
  PutPosition(json);
  json["total_steps"] = plan_.total_steps;
  json["epochs"] = plan_.train_samples > 0
                       ? static_cast<double>(plan_.At(plan_.total_steps).samples_before) /
                             static_cast<double>(plan_.train_samples)
                       : 0;
  since_live_.Put(json);
  json["eta_s"] = RemainingSeconds();
  since_live_ = {};
  return json;
}

Progress::Json Progress::Summary(const std::string& reason, uint64_t weights_hash) const {
  Json json;
  PutPosition(json);
  json["steps"] = total_.steps;
  json["total_steps"] = plan_.total_steps;
  json["learning_rate"] = learning_rate_;
  total_.Put(json);
  // Speed and times are of the whole run; the loss is of its last interval, where it ended.
  const Sums& end = since_log_.steps > 0 || last_log_.steps == 0 ? since_log_ : last_log_;
  end.PutLoss(json);
  if (evaluated_) {
    PutEvaluation(json);
    json["best_test_accuracy"] = best_accuracy_;
    json["best_step"] = best_step_;
  }
  PutRanks(json);
  json["final"] = true;
  json["reason"] = reason;
  json["stopped_early"] = !stop_reason_.empty();
  if (!stop_reason_.empty()) json["stop_reason"] = stop_reason_;
  json["weights_hash"] = fmt::format("{:016x}", weights_hash);
  return json;
}

}  // namespace muster
