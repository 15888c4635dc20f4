#include "ps/progress.h"

#include <fmt/format.h>

#include <algorithm>

namespace muster {
namespace {

double Seconds(Progress::Clock::duration d) { return std::chrono::duration<double>(d).count(); }

}  // namespace

double Progress::Sums::WaitingShare() const {
  const double waiting = push_ms + wait_ms + pull_ms;
  const double all = compute_ms + input_ms + waiting;
  return all > 0 ? waiting / all : 0;
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
  const double reported = static_cast<double>(std::max<int64_t>(reports, 1));
  json["images_per_second"] = ImagesPerSecond();
  json["step_ms"] = 1e3 * seconds / static_cast<double>(std::max<int64_t>(steps, 1));
  json["compute_ms"] = compute_ms / reported;
  json["input_ms"] = input_ms / reported;
  json["push_ms"] = push_ms / reported;
  json["wait_ms"] = wait_ms / reported;
  json["pull_ms"] = pull_ms / reported;
  json["waiting_share"] = WaitingShare();
  json["skipped_steps"] = skipped_steps;
}

void Progress::Begin(const StepPlan& plan) {
  plan_ = plan;
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

void Progress::AddTimes(const wire::StepTimes& times) {
  for (Sums* sums : {&total_, &since_log_, &since_live_}) {
    ++sums->reports;
    sums->compute_ms += times.compute_ms();
    sums->input_ms += times.input_ms();
    sums->push_ms += times.push_ms();
    sums->wait_ms += times.wait_ms();
    sums->pull_ms += times.pull_ms();
  }
}

void Progress::BeginEvaluation() { evaluation_began_ = Clock::now(); }

void Progress::EndEvaluation(double accuracy, double loss) {
  step_began_ = Clock::now();  // no step can end before its workers are done evaluating
  evaluation_seconds_ += Seconds(step_began_ - evaluation_began_);
  test_accuracy_ = accuracy;
  test_loss_ = loss;
  best_accuracy_ = std::max(best_accuracy_.value_or(0), accuracy);
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
  json["test_accuracy"] = *test_accuracy_;
  json["test_loss"] = *test_loss_;
  return json;
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
  const double done = static_cast<double>(total_.samples);
  const double all = static_cast<double>(plan_.At(plan_.total_steps).samples_before);
  json["eta_s"] = done > 0 ? (total_.seconds + evaluation_seconds_) * (all - done) / done : 0;
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
  if (test_accuracy_) {
    json["test_accuracy"] = *test_accuracy_;
    json["test_loss"] = *test_loss_;
    json["best_test_accuracy"] = *best_accuracy_;
  }
  json["final"] = true;
  json["reason"] = reason;
  json["weights_hash"] = fmt::format("{:016x}", weights_hash);
  return json;
}

}  // namespace muster
