#include "ps/record/progress.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "common/base/text.h"
#include "ps/record/scalar_fields.h"

namespace muster {
namespace {

double Seconds(Progress::Clock::duration d) { return std::chrono::duration<double>(d).count(); }

events::StepParts ToEvent(const StepParts& parts) {
  events::StepParts event;
  event.set_compute_ms(parts.compute_ms);
  event.set_input_ms(parts.input_ms);
  event.set_push_ms(parts.push_ms);
  event.set_wait_ms(parts.wait_ms);
  event.set_pull_ms(parts.pull_ms);
  return event;
}

// The shortest text that is read as the same value.
std::string JsonNumber(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  return fmt::format("{}", value);
}

}  // namespace

double Progress::Sums::StepMs() const {
  if (balance.steps > 0) return balance.step_ms / static_cast<double>(balance.steps);
  return 1e3 * seconds / static_cast<double>(std::max<int64_t>(steps, 1));
}

StepParts Progress::Sums::Parts() const {
  return balance.steps > 0 ? balance.parts.Over(static_cast<double>(balance.steps))
                           : times.MeanParts();
}

double Progress::Sums::WaitingShare() const {
  const StepParts parts = Parts();
  const double waiting = parts.push_ms + parts.wait_ms + parts.pull_ms;
  const double all = parts.compute_ms + parts.input_ms + waiting;
  return all > 0 ? waiting / all : 0;
}

void Progress::Sums::PutLoss(events::Measured& measured) const {
  measured.clear_train_loss();
  measured.clear_train_accuracy();
  *measured.mutable_scalars() = MeansOf(scalars);
  measured.set_loss_steps(steps - skipped_steps);
  if (samples > 0 && samples == skipped_samples) return;
  const double n = static_cast<double>(std::max<int64_t>(samples - skipped_samples, 1));
  measured.set_train_loss(loss / n);
  measured.set_train_accuracy(static_cast<double>(correct) / n);
}

events::Measured Progress::Sums::Measured() const {
  events::Measured measured;
  PutLoss(measured);
  measured.set_images_per_second(ImagesPerSecond());
  measured.set_step_ms(StepMs());
  measured.set_timed_steps(balance.steps);
  *measured.mutable_parts() = ToEvent(Parts());
  measured.set_waiting_share(WaitingShare());
  if (balance.steps > 0) {
    events::StepShares& shares = *measured.mutable_shares();
    shares.set_overhead(balance.Share(balance.overhead_ms));
    shares.set_input(balance.Share(balance.input_ms));
    shares.set_imbalance(balance.Share(balance.imbalance_ms));
  }
  measured.set_skipped_steps(skipped_steps);
  if (times.gpu_bytes > 0) measured.set_gpu_memory_mb(1e-6 * static_cast<double>(times.gpu_bytes));
  if (const auto mean = times.gpu_utilization.Get()) measured.set_gpu_utilization(0.01 * *mean);
  if (times.gpu_temperature) measured.set_gpu_temperature_c(*times.gpu_temperature);
  if (const auto mean = times.gpu_power_w.Get()) measured.set_gpu_power_w(*mean);
  return measured;
}

void Progress::Times::Add(const wire::StepTimes& times) {
  ++reports;
  parts.Add(PartsOf(times));
  gpu_bytes = std::max(gpu_bytes, times.gpu_bytes());
  if (times.has_gpu_utilization()) gpu_utilization.Add(times.gpu_utilization());
  if (times.has_gpu_temperature()) {
    gpu_temperature = std::max(gpu_temperature.value_or(0), times.gpu_temperature());
  }
  if (times.has_gpu_power_w()) gpu_power_w.Add(times.gpu_power_w());
}

void Progress::Times::Mean::Add(double value) {
  sum += value;
  ++count;
}

std::optional<double> Progress::Times::Mean::Get() const {
  if (count == 0) return std::nullopt;
  return sum / static_cast<double>(count);
}

StepParts Progress::Times::MeanParts() const {
  return parts.Over(static_cast<double>(std::max<int64_t>(reports, 1)));
}

void Progress::Begin(const StepPlan& plan, uint32_t workers, uint32_t seats) {
  plan_ = plan;
  workers_ = workers;
  ranks_.assign(std::max(workers, seats), {});
  balances_ = StepBalances(workers, total_.steps);
  step_began_ = Clock::now();
}

void Progress::EndStep(const StepResult& result, double learning_rate, bool skipped) {
  const Clock::time_point now = Clock::now();
  const double seconds = Seconds(now - step_began_);
  step_began_ = now;
  last_step_s_ = seconds;
  learning_rate_ = learning_rate;
  loss_scale_ = result.loss_scale;
  constexpr size_t kRecent = 101;
  if (recent_seconds_.size() < kRecent) {
    recent_seconds_.push_back(seconds);
  } else {
    recent_seconds_[static_cast<size_t>(total_.steps) % kRecent] = seconds;
  }
  AddBalance(balances_.EndStep(total_.steps, after_evaluation_ ? 0 : seconds));
  after_evaluation_ = false;
  evaluations_.StepEnded();
  for (Sums* sums : {&total_, &since_log_, &since_live_, &since_epoch_}) {
    ++sums->steps;
    sums->samples += result.samples;
    sums->seconds += seconds;
    if (skipped) {
      ++sums->skipped_steps;
      sums->skipped_samples += result.samples;
      continue;
    }
    sums->correct += result.correct;
    sums->loss += result.loss;
    AddScalarSums(result.scalars, sums->scalars);
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

std::string Progress::ExpectSteps(const std::string& text) {
  int64_t steps = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), steps);
  const bool is_number = error == std::errc() && end == text.data() + text.size();
  if (!is_number || steps < 0 || steps > plan_.total_steps) {
    return "a length of " + Printable(text) + " steps";
  }
  expected_steps_ = steps;
  return "";
}

void Progress::BeginEvaluation() { evaluation_began_ = Clock::now(); }

void Progress::EndEvaluation(const EvaluationResult& result) {
  step_began_ = Clock::now();  // no step ends during an evaluation
  after_evaluation_ = true;
  evaluation_seconds_ += Seconds(step_began_ - evaluation_began_);
  evaluations_.Add(result);
}

std::optional<double> Progress::MedianStep() const {
  if (recent_seconds_.empty()) return std::nullopt;
  std::vector<double> sorted = recent_seconds_;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

double Progress::Elapsed() const {
  return earlier_.seconds + Seconds(Clock::now() - process_began_);
}

double Progress::Epoch() const { return plan_.EpochsOf(total_.samples); }

double Progress::RemainingSeconds() const {
  const double done = static_cast<double>(total_.samples);
  const double all = static_cast<double>(plan_.At(TotalSteps()).samples_before);
  return done > 0 ? (total_.seconds + evaluation_seconds_) * std::max(0.0, all - done) / done : 0;
}

events::Position Progress::Position() const {
  events::Position position;
  position.set_step(total_.steps);
  position.set_samples(total_.samples);
  position.set_epoch(Epoch());
  position.set_elapsed_s(Elapsed());
  return position;
}

events::Measured Progress::Measured(const Sums& sums) const {
  events::Measured measured = sums.Measured();
  if (loss_scale_) measured.set_loss_scale(*loss_scale_);
  if (has_values_) measured.clear_train_accuracy();
  return measured;
}

events::Log Progress::LogLine() {
  events::Log line;
  *line.mutable_at() = Position();
  line.set_learning_rate(learning_rate_);
  *line.mutable_measured() = Measured(since_log_);
  line.set_eta_s(RemainingSeconds());
  last_log_ = since_log_;
  since_log_ = {};
  return line;
}

std::string Progress::EpochMeans() const {
  events::Measured measured;
  since_epoch_.PutLoss(measured);
  std::string text;
  const auto put = [&](const std::string& name, double value) {
    text += fmt::format("{}\"{}\": {}", text.empty() ? "" : ", ", name, JsonNumber(value));
  };
  if (measured.has_train_loss()) put("loss", measured.train_loss());
  for (const auto& [name, sum] : since_epoch_.scalars) {
    if (name != "loss") put(name, sum.Mean());
  }
  return '{' + text + '}';
}

events::Evaluation Progress::EvaluationLine(const EvaluationResult& result) const {
  events::Evaluation line;
  *line.mutable_at() = Position();
  line.set_learning_rate(learning_rate_);
  *line.mutable_measured() = Measured(since_log_.steps > 0 ? since_log_ : last_log_);
  (result.set == wire::VALIDATION ? *line.mutable_validation() : *line.mutable_test()) =
      ScoresOf(result);
  return line;
}

events::Progress Progress::PositionLine() const {
  events::Progress line;
  *line.mutable_at() = Position();
  if (plan_.global_batch == 0) return line;  // not planned yet
  line.set_total_steps(TotalSteps());
  if (TotalSteps() == 0) return line;  // an open run whose length is not known
  line.set_epochs(plan_.train_samples > 0 ? plan_.EpochsOf(plan_.At(TotalSteps()).samples_before)
                                          : 0);
  line.set_eta_s(RemainingSeconds());
  return line;
}

events::Progress Progress::LiveLine() {
  events::Progress line = PositionLine();
  *line.mutable_measured() = Measured(since_live_);
  since_live_ = {};
  return line;
}

events::Progress Progress::EvaluatingLine(int64_t done, int64_t blocks) const {
  events::Progress line;
  line.mutable_at()->set_step(total_.steps);
  line.set_total_steps(TotalSteps());
  line.mutable_evaluating()->set_done(done);
  line.mutable_evaluating()->set_total(blocks);
  return line;
}

events::Summary Progress::Summary(events::Summary::End end, uint64_t weights_hash) const {
  events::Summary summary;
  *summary.mutable_at() = Position();
  summary.set_end(end);
  summary.set_steps(total_.steps);
  const bool is_whole = plan_.IsOpen() && end == events::Summary::COMPLETED;
  summary.set_total_steps(is_whole ? total_.steps : std::max(TotalSteps(), total_.steps));
  summary.set_learning_rate(learning_rate_);
  *summary.mutable_measured() = Measured(total_);
  // Speed and times cover the whole run; loss and scalars cover its last interval.
  const Sums& last = since_log_.steps > 0 || last_log_.steps == 0 ? since_log_ : last_log_;
  last.PutLoss(*summary.mutable_measured());
  if (has_values_) summary.mutable_measured()->clear_train_accuracy();
  evaluations_.Put(summary);
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    const bool may_lack = rank >= workers_ || total_.steps > 0;
    if (may_lack && ranks_[rank].reports == 0) continue;  // the rank was never used
    events::Summary::Rank& one = *summary.add_ranks();
    one.set_rank(static_cast<uint32_t>(rank));
    *one.mutable_parts() = ToEvent(ranks_[rank].MeanParts());
  }
  if (!plan_.IsOpen()) summary.set_stop_reason(stop_reason_);  // otherwise it is the usual end
  summary.set_steps_before(earlier_.steps);
  summary.set_weights_hash(fmt::format("{:016x}", weights_hash));
  return summary;
}

}  // namespace muster
