// Shows a running job to the user: the server's events as lines.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>

#include "cli/job/job_plan.h"
#include "cli/text/console.h"
#include "proto/events.pb.h"

namespace muster {

// Used by the launcher's thread. A terminal gets a live line, and permanent lines for important
// events. Other outputs get only permanent lines, one per logging interval and evaluation. Each
// worker started by hand also gets a line when it joins.
class JobDisplay {
 public:
  // The plan must outlive this. `log_placement`: print where each rank runs when all have joined.
  JobDisplay(Console& console, const JobPlan& plan, bool log_placement = false)
      : console_(console), plan_(plan), log_placement_(log_placement) {}

  // Shows what happens while the server sends no events: "Starting the server".
  void ShowStage(const std::string& stage);

  void OnEvent(const events::Event& event);

  // Called when another server resumes the run. Its progress is still unknown.
  void BeginAgain() { progress_.clear_at(); }
  // The number of servers that reported resuming the run of a lost server.
  int64_t restarts_told() const { return restarts_told_; }
  // Whether any worker reported that it computes on a GPU.
  bool on_gpus() const { return on_gpus_; }

  std::optional<int64_t> step() const;  // the last reported step
  // " at step 57 of 3,910", or "" before the first step.
  std::string AtStep() const;

 private:
  void OnStarted(const events::Started& started);
  void OnWaiting(const events::Waiting& waiting);
  void OnProgress(const events::Progress& progress);
  void TellTime(const events::Progress& progress);
  void OnEvaluation(const events::Evaluation& evaluation);
  void OnLog(const events::Log& log);
  void Print(std::string line, const google::protobuf::RepeatedPtrField<events::Scalar>& scalars);

  Console& console_;
  const JobPlan& plan_;
  const bool log_placement_;
  events::Progress progress_;  // merged from all events
  int64_t steps_per_epoch_ = 0;
  // Sums over steps after the first ones; once the time of the run is shown, measured_steps_ is -1.
  bool warmed_up_ = false;
  int64_t measured_steps_ = 0;
  double measured_ms_ = 0;
  int64_t logged_step_ = 0;
  int64_t restarts_told_ = 0;
  bool on_gpus_ = false;
};

// "rank 1", "ranks 1, 3 and 4"; long lists are truncated.
std::string RankList(std::span<const uint32_t> ranks);

// "accuracy 0.913"
std::string ScalarText(const events::Scalar& scalar);

// step 57/3,910  epoch 0.15/10  loss 1.901  accuracy 31.0 %  1,200 images/s  waiting 2 %
//   5 min 00 s left
// in one line of at most `width` characters. The least important parts are dropped first; unknown
// ones are always omitted. `sample`: see SampleNoun.
std::string ProgressLine(const events::Progress& progress, int width, const char* sample = "image");

// Like ProgressLine, but for a permanent line, in columns of fixed width, with no part dropped.
std::string IntervalLine(const events::Progress& progress, const char* sample = "image");

// evaluation  epoch 1.00  step 391  test accuracy 55.12 %  test loss 1.2842  after 12 s
// The time, the epoch and metrics are dropped if the line would be longer than `width`.
std::string EvaluationLine(const events::Evaluation& evaluation,
                           int width = std::numeric_limits<int>::max());

// "Lost rank 1 (pid 42) at step 120: its connection ended; 4 slices reassigned; 1 worker now"
std::string ChangeLine(const events::MemberChange& change);

}  // namespace muster
