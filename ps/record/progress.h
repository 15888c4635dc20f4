// Turns finished steps into statistics: loss, accuracy and scalars over an interval, images per
// second, and where the time was spent. Owner: the server's loop.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/plan/scalar_sums.h"
#include "common/plan/step_plan.h"
#include "proto/checkpoint.pb.h"
#include "proto/events.pb.h"
#include "proto/wire.pb.h"
#include "ps/record/evaluation_record.h"
#include "ps/record/step_balance.h"

namespace muster {

// The sums over the slices of a step.
struct StepResult {
  int64_t samples = 0, correct = 0;
  double loss = 0;  // sum over the samples
  ScalarSums scalars = {};
  std::optional<double> loss_scale;
};

class Progress {
 public:
  using Clock = std::chrono::steady_clock;

  // `has_values`: regression, which has no accuracy.
  explicit Progress(bool has_values = false) : has_values_(has_values) {}

  // Called when all workers are ready. Starts the training time. `seats`: the number of possible
  // ranks; 0: `workers`.
  void Begin(const StepPlan& plan, uint32_t workers, uint32_t seats = 0);
  // Sets the number of workers whose reports are expected.
  void SetWorkers(uint32_t workers) { balances_.SetRanks(workers); }
  // A skipped step counts as a step, but its loss, which may be NaN, is excluded.
  void EndStep(const StepResult& result, double learning_rate, bool skipped);
  void AddTimes(uint32_t rank, const wire::StepTimes& times);
  // The time between BeginEvaluation and EndEvaluation is not training time.
  void BeginEvaluation();
  void EndEvaluation(const EvaluationResult& result);
  // The program of an open run expects this many steps. Returns why that is no number, or "".
  std::string ExpectSteps(const std::string& text);
  // Sets the reason why the run ends before its last step ("reached ..."), or "".
  void StopEarly(const std::string& reason) { stop_reason_ = reason; }
  const std::string& stop_reason() const { return stop_reason_; }

  int64_t steps() const { return total_.steps; }
  double last_step_s() const { return last_step_s_; }
  const EvaluationRecord& evaluations() const { return evaluations_; }
  // Median duration of the recent steps in seconds; empty before this process's first step.
  std::optional<double> MedianStep() const;

  // The state that checkpoints save. Restore it before Begin. Step times are not saved.
  checkpoint::Progress Keep() const;
  void Restore(const checkpoint::Progress& kept);

  // Statistics of the steps since the last LogLine.
  events::Log LogLine();
  // The means of the loss and the scalars over the steps of this epoch, as JSON that Python reads.
  std::string EpochMeans() const;
  void EndEpoch() { since_epoch_ = {}; }
  // The line of the evaluation that just ended.
  events::Evaluation EvaluationLine(const EvaluationResult& result) const;
  // Reports only the position of the run.
  events::Progress PositionLine() const;
  // Statistics since the last LiveLine, for the launcher's live display.
  events::Progress LiveLine();
  // Like LiveLine, but during an evaluation.
  events::Progress EvaluatingLine(int64_t done, int64_t blocks) const;
  events::Summary Summary(events::Summary::End end, uint64_t weights_hash) const;

 private:
  // The workers' times, summed over their reports.
  struct Times {
    int64_t reports = 0;
    StepParts parts;
    uint64_t gpu_bytes = 0;  // maximum
    // A mean over the reports that have the value.
    struct Mean {
      double sum = 0;
      int64_t count = 0;

      void Add(double value);
      std::optional<double> Get() const;
    };
    Mean gpu_utilization, gpu_power_w;        // percent; watts
    std::optional<uint32_t> gpu_temperature;  // maximum

    void Add(const wire::StepTimes& times);
    StepParts MeanParts() const;
  };
  struct Sums {
    int64_t steps = 0, samples = 0, correct = 0;
    int64_t skipped_steps = 0, skipped_samples = 0;  // included above
    double loss = 0, seconds = 0;
    ScalarSums scalars;
    Times times;          // sums over all workers
    StepBalance balance;  // sum over the steps with a known balance

    double ImagesPerSecond() const {
      return seconds > 0 ? static_cast<double>(samples) / seconds : 0;
    }
    // The duration of a step and its parts on a worker. Both cover only steps with a known balance,
    // so that the parts add up to the step. The first step after an evaluation has none, because
    // ranks begin it before the server measures it.
    double StepMs() const;
    StepParts Parts() const;
    double WaitingShare() const;
    checkpoint::Sums Keep() const;
    void Restore(const checkpoint::Sums& kept);
    // Excludes skipped steps; there is no loss if all were skipped.
    void PutLoss(events::Measured& measured) const;
    events::Measured Measured() const;
  };
  double Elapsed() const;
  double Epoch() const;
  // The length of the run; 0: not known.
  int64_t TotalSteps() const { return plan_.IsOpen() ? expected_steps_ : plan_.total_steps; }
  // Time until the end of the run, at the mean speed so far.
  double RemainingSeconds() const;
  events::Position Position() const;
  events::Measured Measured(const Sums& sums) const;
  void AddBalance(const std::optional<StepBalance>& step);

  const bool has_values_;
  StepPlan plan_;
  Clock::time_point process_began_ = Clock::now();
  struct Earlier {
    int64_t steps = 0;
    double seconds = 0;
  };
  Earlier earlier_;  // totals of earlier processes of this run
  Clock::time_point step_began_ = Clock::now();
  double last_step_s_ = 0;
  double learning_rate_ = 0;
  std::optional<double> loss_scale_;
  std::vector<double> recent_seconds_;  // durations of the last steps; a ring buffer
  Sums total_, since_log_, last_log_, since_live_, since_epoch_;
  uint32_t workers_ = 0;      // initial number of workers
  std::vector<Times> ranks_;  // totals of the whole run by rank, including ranks that joined later
  StepBalances balances_;
  bool after_evaluation_ = false;  // ranks begin this step at different times
  EvaluationRecord evaluations_;
  int64_t expected_steps_ = 0;  // of an open run
  std::string stop_reason_;     // empty: not stopped early
  double evaluation_seconds_ = 0;
  Clock::time_point evaluation_began_;
};

}  // namespace muster
