// Turns finished steps into the numbers that people read: loss and accuracy over an interval,
// images per second, where the time went. Owner: the server's loop.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/plan/step_plan.h"
#include "proto/checkpoint.pb.h"
#include "proto/events.pb.h"
#include "proto/wire.pb.h"
#include "ps/record/evaluation_record.h"
#include "ps/record/step_balance.h"

namespace muster {

// What the slices of a step come to.
struct StepResult {
  int64_t samples = 0, correct = 0;
  double loss = 0;  // sum over the samples
};

class Progress {
 public:
  using Clock = std::chrono::steady_clock;

  // `has_values`: no training is accurate.
  explicit Progress(bool has_values = false) : has_values_(has_values) {}

  // All workers are ready: training time starts to count.
  // `seats`: for others that come later; 0: none do.
  void Begin(const StepPlan& plan, uint32_t workers, uint32_t seats = 0);
  // How many take part from now on, of whom reports are expected.
  void SetWorkers(uint32_t workers) { balances_.SetRanks(workers); }
  // A skipped step counts as a step, but its loss, which may be a NaN, is left out.
  void EndStep(const StepResult& result, double learning_rate, bool skipped);
  void AddTimes(uint32_t rank, const wire::StepTimes& times);
  // Time between the two is not training time.
  void BeginEvaluation();
  void EndEvaluation(const EvaluationResult& result);
  // The run ends before its last step, and why: "reached …"; "": it does not.
  void StopEarly(const std::string& reason) { stop_reason_ = reason; }
  const std::string& stop_reason() const { return stop_reason_; }

  int64_t steps() const { return total_.steps; }
  double last_step_s() const { return last_step_s_; }
  const EvaluationRecord& evaluations() const { return evaluations_; }
  // Seconds; empty before this process's first step.
  std::optional<double> MedianStep() const;

  // A checkpoint keeps this, and a resumed run begins with it, before Begin. Times of steps are not
  // kept: each process has its own.
  checkpoint::Progress Keep() const;
  void Restore(const checkpoint::Progress& kept);

  // The steps since the last one.
  events::Log LogLine();
  // The evaluation that just ended.
  events::Evaluation EvaluationLine(const EvaluationResult& result) const;
  // How far the run is, and no more.
  events::Progress PositionLine() const;
  // For the launcher's live line; about the steps since the last one.
  events::Progress LiveLine();
  // The same while blocks of an evaluation come in.
  events::Progress EvaluatingLine(int64_t done, int64_t blocks) const;
  events::Summary Summary(events::Summary::End end, uint64_t weights_hash) const;

 private:
  // Where workers' time went, summed over reports.
  struct Times {
    int64_t reports = 0;
    StepParts parts;
    uint64_t gpu_bytes = 0;  // the most

    void Add(const wire::StepTimes& times);
    StepParts Mean() const;
  };
  struct Sums {
    int64_t steps = 0, samples = 0, correct = 0;
    int64_t skipped_steps = 0, skipped_samples = 0;  // of these
    double loss = 0, seconds = 0;
    Times times;          // of all workers
    StepBalance balance;  // of the steps of which it is known

    double ImagesPerSecond() const {
      return seconds > 0 ? static_cast<double>(samples) / seconds : 0;
    }
    // The time of a step, and a worker's parts of it: both over the steps whose balance is known,
    // so that the parts make up the step: ranks begin a step after an evaluation before the server
    // counts its time.
    double StepMs() const;
    StepParts Parts() const;
    double WaitingShare() const;
    checkpoint::Sums Keep() const;
    void Restore(const checkpoint::Sums& kept);
    // Leaves out skipped steps; puts nothing if there is no other.
    void PutLoss(events::Measured& measured) const;
    events::Measured Measured() const;
  };
  double Elapsed() const;
  double Epoch() const;
  // Until the end of the run, at the mean speed so far.
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
  Earlier earlier_;  // what earlier processes of this run did
  Clock::time_point step_began_ = Clock::now();
  double last_step_s_ = 0;
  double learning_rate_ = 0;
  std::vector<double> recent_seconds_;  // of the last steps, a ring
  Sums total_, since_log_, last_log_, since_live_;
  uint32_t workers_ = 0;      // at the start
  std::vector<Times> ranks_;  // of the whole run, those of later ones, too
  StepBalances balances_;
  bool after_evaluation_ = false;  // ranks begin such a step at different times
  EvaluationRecord evaluations_;
  std::string stop_reason_;  // empty: the run goes to its end
  double evaluation_seconds_ = 0;
  Clock::time_point evaluation_began_;
};

}  // namespace muster
