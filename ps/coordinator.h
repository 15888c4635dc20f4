// What happens next: the phases of a run and, in training, its steps (docs/DESIGN.md, "One step").
//
// Handlers return why a message does not fit, "" if it does. A failure of the job is set, not
// thrown; what the environment does (a full disk) is thrown as Error.
//
// Owner: the server. Used in the loop's thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/base/background_thread.h"
#include "common/graph/graph.h"
#include "common/link/link.h"
#include "common/plan/step_plan.h"
#include "proto/config.pb.h"
#include "ps/aggregator.h"
#include "ps/checkpoints.h"
#include "ps/convolution_choices.h"
#include "ps/deadlines.h"
#include "ps/decisions.h"
#include "ps/evaluator.h"
#include "ps/first_failure.h"
#include "ps/lost_work.h"
#include "ps/member_changes.h"
#include "ps/membership.h"
#include "ps/model_saver.h"
#include "ps/nonfinite_policy.h"
#include "ps/progress.h"
#include "ps/reporter.h"
#include "ps/run_watch.h"
#include "ps/schedule.h"
#include "ps/shares.h"
#include "ps/step_losses.h"
#include "ps/tensorboard/board.h"
#include "ps/thread_pool.h"
#include "ps/variables.h"
#include "ps/work_orders.h"

namespace muster {

class Coordinator {
 public:
  // All outlive this, but for `resume`: where the run goes on from, or null. `config` is resolved
  // (slices and threads are set). `evaluate_only`: there are no steps; the weights that the run
  // would begin with are evaluated once. Throws Error(kData) if the checkpoint cannot be read.
  Coordinator(const config::Config& config, const Graph& graph, Membership& members,
              Reporter& reporter, FirstFailure& failure, const ResumePoint* resume = nullptr,
              bool evaluate_only = false);

  // All have joined: plans the run, welcomes them, sends W(0).
  void Begin();
  // One has come late, or again over another link: it is welcomed.
  void OnJoined(uint32_t rank);
  // Somebody has come whom the start does not wait for; but it does, if nobody else is left.
  void OnWaits();
  // Why it cannot take part, or "".
  std::string OnReady(uint32_t rank, const wire::Ready& ready);
  // A member is gone: why, and with which code a run ends that cannot go on without it. Whatever it
  // had not brought is given to others.
  void OnLost(uint32_t rank, ExitCode code, const std::string& why);
  // It wants to go; it has gone.
  void OnLeave(uint32_t rank);
  void OnLeft(uint32_t rank);

  std::string OnSliceLoss(uint32_t rank, const wire::SliceLoss& loss);
  std::string OnGradient(uint32_t rank, const wire::GradientPart& part, const Payload& payload);
  std::string OnEvaluatedBlock(uint32_t rank, const wire::EvaluatedBlock& block);
  void OnStepTimes(uint32_t rank, const wire::StepTimes& times);

  // By hand, in training only (PROTOCOL.md): with on_lost_worker of ABORT nothing of it is done
  // here.
  //
  // A member is to compute what is missing of this subtree in the step under way. False: nothing
  // is, or it has no room.
  bool Redo(uint32_t rank, const TreeNode& node);
  void Fence(uint32_t rank) { work_.Fence(rank); }
  void Assign(std::vector<std::vector<TreeNode>> nodes) { work_.Assign(std::move(nodes)); }

  // Publishes what the pool has finished, and ends the step if that was all of it.
  void Advance(bool collect);
  // Sets the failure if somebody is late. Also tells who is still missing at the start. `now` is
  // that of which suspensions have been forgiven: a later one could have another in it.
  void CheckDeadlines(std::chrono::steady_clock::time_point now);
  // From when on members are late that have not done their part of the step under way.
  std::chrono::steady_clock::time_point LateAt() const;
  void Forgive(std::chrono::steady_clock::duration suspension);

  // The last checkpoint is on the disk, too, or cannot be.
  bool done() const { return done_ && !checkpoints_.busy(); }
  // At a step's boundary: nothing has been updated since W(step()) was complete.
  bool AtBoundary() const;
  // A checkpoint at the next boundary.
  void AskForCheckpoint() { checkpoints_.Ask(); }
  // The run has ended early, at a boundary: keeps it, and waits until it is on the disk.
  // `meanwhile` is called now and then.
  void KeepLast(const std::function<void()>& meanwhile);
  const Checkpoints& checkpoints() const { return checkpoints_; }
  const std::string& matrix_trouble() const { return evaluator_.matrix_trouble(); }
  // The last word on the run, to all that is written beside the metrics.
  void End(const events::Summary& summary);
  // After End: what TensorBoard's files lack, or "".
  std::string LackingEvents() { return board_.Missing(); }
  // No more steps will be ordered.
  bool finishing() const { return phase_ == Phase::kFinishing; }
  // Whether training has begun.
  bool has_begun() const { return phase_ == Phase::kTraining || phase_ == Phase::kFinishing; }
  // W(step()) is the newest version that is whole.
  int64_t step() const { return step_; }
  uint64_t weights_hash() const { return variables_.HashWeights(step_); }
  const Progress& progress() const { return progress_; }
  const MemberChanges& changes() const { return changes_; }
  const Shares& shares() const { return shares_; }
  ThreadPool& pool() { return pool_; }
  ModelSaver& saver() { return saver_; }
  const ModelSaver& saver() const { return saver_; }
  SharedMemory& shared_weights() { return variables_.shared(); }
  const char* instruction_set() const { return aggregator_.instruction_set(); }

 private:
  friend class ServerProbe;  // tests/protocol looks at all of it
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kWaitingInterval{5};
  // kFinishing: no more steps will be ordered; the last evaluations may go on.
  enum class Phase { kGathering, kPreparing, kTraining, kFinishing };

  checkpoint::State Describe() const;
  bool FitsCounters();
  bool FitsCheckpoint();
  bool FinishAsItIs();
  bool IsEvaluated() const;
  bool TestIsDue() const;
  void CompareArithmetic();
  DueLines LinesSoFar() const;
  void StartRun();
  void AdmitAll();
  void GoOn();
  // coordinator_members.cc
  void StartIfReady();
  void SendWeights(uint32_t rank);
  void EnterNow(uint32_t rank);
  void Order(int64_t step);
  void DivideSlices(int64_t step);
  bool StepsAreLong() const;
  bool PushSlices() const;
  void OrderNow();
  size_t LeastWorkers() const;
  bool Starves() const;
  void ExpectShares();
  void Repair();
  std::set<uint32_t> Late() const;
  void GiveOutSlices();
  bool EnterToHelp();
  void HelpIsFree(uint32_t rank);
  bool IsHeldBack(const WorkItem& item);
  bool Evaluates() const;
  bool GiveAgain(uint32_t rank, const TreeNode& piece);
  void GiveOutBlocks();
  void ReleaseLeaving();
  void FenceAll(const std::vector<uint32_t>& ranks);
  bool IsMissing(int64_t slice) const;
  int64_t OpenSlices(uint32_t rank) const;
  std::vector<WorkItem> WasAt(uint32_t rank) const;
  std::string NameOf(const WorkItem& item) const;
  bool KillsWorkers(uint32_t rank, const std::string& why);
  void GiveUpWaitingFor(uint32_t rank);
  void Changed(events::MemberChange::Kind kind, uint32_t rank, const std::string& why,
               int64_t slices = 0, int64_t blocks = 0);
  void CheckStarved(Clock::time_point now);
  void CheckUnready(Clock::time_point now);
  Clock::duration LateAfter() const;
  void CheckStragglers(Clock::time_point now);
  void CheckLateBlocks(Clock::time_point now);
  void EvaluateOnly();
  void Proceed();
  void Finish();
  bool MayProceed() const;
  void OrderEvaluation(int64_t version, wire::EvaluationSet set);
  void BeginStep(int64_t step);
  void OrderNext();
  void PublishChunk(int64_t version, size_t chunk);
  void PublishAverage(int64_t version, size_t chunk);
  wire::ServerMessage WeightsMessage(int64_t version, size_t chunk) const;
  void EndStep();
  void ReportStep(int64_t steps_done);
  void EndEvaluation();
  // Takes the result in; what follows from it, in words, or "".
  std::string Decide(const EvaluationResult& result);
  bool IsOver();
  bool LiveLineIsDue();  // a line for a person's eyes, at most five a second
  void CheckStart(Clock::time_point now);
  void CheckStep(Clock::time_point now);
  void FailDifferent(uint32_t rank, int64_t slice);
  // Who has not done its part of the step, and what is missing.
  std::vector<uint32_t> LateRanks(std::string& what) const;
  std::string WhatIsMissing() const;
  void Look(Clock::time_point now);
  std::string StallText(Clock::time_point now) const;
  void BlameLate(const std::vector<uint32_t>& ranks, const std::string& what, double limit,
                 const std::string& missing = "");

  const config::Config& config_;
  const Graph& graph_;
  Membership& members_;
  Reporter& reporter_;
  FirstFailure& failure_;
  const bool evaluate_only_;
  const std::string run_id_;
  NonfinitePolicy nonfinite_;

  Variables variables_;
  ThreadPool pool_;  // joined before the memory goes that its threads use
  Aggregator aggregator_;

  Phase phase_ = Phase::kGathering;
  bool done_ = false;
  StepPlan plan_;
  ConvolutionChoices convolutions_;
  WorkOrders work_;
  Shares shares_;
  std::optional<uint32_t> expected_;  // the assignment whose parts the aggregator expects
  int64_t ordered_ = -1;              // the newest step that was ordered
  std::optional<int64_t> held_;       // the step that is not, for lack of workers
  std::vector<bool> published_;       // the chunks of W(step_ + 1)
  const bool recovers_;               // from the loss of workers
  bool repair_due_ = false;           // somebody's work may have nobody
  std::optional<LostWork::Clock::time_point> repair_at_;  // … and may be given to others then
  bool orphans_wait_ = false;                             // until somebody has nothing else to do
  bool somebody_late_ = false;                            // in this step
  std::optional<double> first_part_s_;                    // when the first part of it was here
  std::string last_loss_;                                 // in words
  LostWork lost_work_;
  MemberChanges changes_;
  std::optional<Clock::time_point> starved_since_;
  LearningRateSchedule schedule_;
  Evaluator evaluator_;
  Decisions decisions_;

  int64_t step_ = 0;
  StepLosses losses_;
  bool losses_complete_ = false;  // the update waits for a checkpoint's copy
  double learning_rate_ = 0;

  Progress progress_;
  ModelSaver saver_;
  BackgroundThread files_;  // writes what nobody waits for
  Board board_;
  RunWatch watch_;
  Deadlines deadlines_;
  std::optional<checkpoint::State> resumed_;  // what this run went on from
  Checkpoints checkpoints_;
  Clock::time_point next_live_ = Clock::now();
  Clock::time_point next_waiting_;
};

}  // namespace muster
