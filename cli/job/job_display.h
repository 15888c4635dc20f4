// What a person sees of a running job: the server's reports as lines.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "cli/job/job_plan.h"
#include "cli/text/console.h"
#include "proto/events.pb.h"

namespace muster {

// Used by the launcher's thread. On a terminal: a live line, and permanent lines for what is worth
// keeping; elsewhere only permanent lines, one per logging interval and evaluation. Where workers
// are started by hand they come one by one, and each is worth a line.
class JobDisplay {
 public:
  // The plan must outlive this. `log_placement`: say where each rank runs, once all are there.
  JobDisplay(Console& console, const JobPlan& plan, bool log_placement = false)
      : console_(console), plan_(plan), log_placement_(log_placement) {}

  // What is going on when the server has nothing to say: "Starting the server".
  void ShowStage(const std::string& stage);

  void OnEvent(const events::Event& event);

  // Another server goes on with the run: nothing is known of its progress.
  void BeginAgain() { progress_.clear_at(); }
  // Servers that have said that they go on in another one's place.
  int64_t restarts_told() const { return restarts_told_; }
  // Whether any of the workers has said that it computes on a GPU.
  bool on_gpus() const { return on_gpus_; }

  std::optional<int64_t> step() const;  // that was heard of last
  // " at step 57 of 3,910", or "" before the first step.
  std::string AtStep() const;

 private:
  void OnStarted(const events::Started& started);
  void OnWaiting(const events::Waiting& waiting);
  void OnProgress(const events::Progress& progress);
  void OnEvaluation(const events::Evaluation& evaluation);
  void OnLog(const events::Log& log);

  Console& console_;
  const JobPlan& plan_;
  const bool log_placement_;
  events::Progress progress_;  // all that is known
  int64_t restarts_told_ = 0;
  bool on_gpus_ = false;
};

// "rank 1", "ranks 1, 3 and 4"; long lists are cut.
std::string RankList(std::span<const uint32_t> ranks);

// The lines that a running job prints.

// step 57/3,910  epoch 0.15/10  loss 1.901  accuracy 31.0 %  1,200 images/s  waiting 2 %
//   5 min 00 s left
// in one line of at most `width` characters: what matters least is left out first. What is not
// known is left out always.
std::string ProgressLine(const events::Progress& progress, int width);

// The same for a permanent line: columns of fixed width, nothing left out.
std::string IntervalLine(const events::Progress& progress);

// epoch 1.00  step 391  test accuracy 55.12 %  test loss 1.2842
std::string EvaluationLine(const events::Evaluation& evaluation);

// "Lost rank 1 (pid 42) at step 120: its connection ended; others compute 4 slices; 1 worker now"
std::string ChangeLine(const events::MemberChange& change);

}  // namespace muster
