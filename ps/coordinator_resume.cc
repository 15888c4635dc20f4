// How a run is kept, how it goes on, and how it ends.
#include <fmt/core.h>
#include <poll.h>

#include <algorithm>

#include "common/base/log.h"
#include "common/base/version.h"
#include "common/checkpoint/early_stop.h"
#include "common/config/config.h"
#include "common/config/job_size.h"
#include "common/plan/count_limits.h"
#include "ps/coordinator.h"

namespace muster {
namespace {

// What can be done about data that have changed.
std::string OtherDataRemedy(const config::Config& config) {
  const bool photos = config.data().format() == config::Data::IMAGE_FOLDER;
  return fmt::format(
      "{}. Put the data back as they were, or begin a new run with the weights of this one: "
      "--initial-weights {}/model.safetensors",
      photos ? ": files were added, removed, renamed or left out" : "", config.run().dir());
}

}  // namespace

checkpoint::State Coordinator::Describe() const {
  checkpoint::State state;
  state.set_muster_version(kVersion);
  state.set_step(step_);
  state.set_evaluated(step_ > 0 && evaluator_.IsDueAfter(step_ - 1) && !evaluator_.running());
  checkpoint::Plan& plan = *state.mutable_plan();
  plan.set_train_samples(plan_.train_samples);
  plan.set_test_samples(members_.roster().test_samples());
  plan.set_validation_samples(members_.roster().validation_samples());
  plan.set_global_batch(plan_.global_batch);
  plan.set_slices(plan_.slices);
  plan.set_total_steps(plan_.total_steps);
  plan.set_layout_hash(graph_.layout().hash());
  plan.set_data_fingerprint(members_.roster().data_fingerprint());
  for (const std::string& arithmetic : members_.roster().Arithmetic()) {
    state.mutable_arithmetic()->add_worker(arithmetic);
  }
  convolutions_.Keep(*state.mutable_arithmetic());
  state.set_updates(variables_.updates());
  state.set_skipped_in_a_row(nonfinite_.skipped_in_a_row());
  *state.mutable_progress() = progress_.Keep();
  *state.mutable_decisions() = decisions_.Keep();
  *state.mutable_metrics() = reporter_.KeepMetrics();
  return state;
}

// What workers say of their data, and the config, must come to a run that can be counted.
bool Coordinator::FitsCounters() {
  const Roster& roster = members_.roster();
  const int64_t most = std::max(roster.validation_samples(), roster.test_samples());
  const std::string why = CountTrouble(plan_, most, config_.evaluation().batch());
  if (!why.empty()) failure_.Set({ExitCode::kUsage, std::nullopt, why});
  return why.empty();
}

// What only the workers know: the data. And whether there is anything left to do.
bool Coordinator::FitsCheckpoint() {
  if (!resumed_) return true;
  const checkpoint::Plan& then = resumed_->plan();
  const Roster& roster = members_.roster();
  std::string why;
  const auto compare = [&](const char* what, int64_t was, int64_t is) {
    if (was != is && why.empty()) why = fmt::format("{} was {} and is now {}", what, was, is);
  };
  compare("the number of training samples", then.train_samples(), plan_.train_samples);
  compare("the number of validation samples", then.validation_samples(),
          roster.validation_samples());
  compare("the number of test samples", then.test_samples(), roster.test_samples());
  if (why.empty() && then.data_fingerprint() != roster.data_fingerprint()) {
    why = "the training data are not those that the run began with";
  }
  if (!why.empty()) why += OtherDataRemedy(config_);
  compare("the global batch", then.global_batch(), plan_.global_batch);
  compare("the number of slices", then.slices(), plan_.slices);
  if (why.empty() && plan_.total_steps < step_) {
    why = fmt::format("it has done {} steps, and is now to end after {}", step_, plan_.total_steps);
  }
  if (!why.empty()) {
    failure_.Set({ExitCode::kUsage, std::nullopt, "the run cannot be resumed: " + why});
    return false;
  }
  CompareArithmetic();
  return true;
}

void Coordinator::CompareArithmetic() {
  const checkpoint::Arithmetic& kept = resumed_->arithmetic();
  const std::vector<std::string> before(kept.worker().begin(), kept.worker().end()),
      now = members_.roster().Arithmetic();
  if (before == now || before.empty() || now.empty()) return;
  const std::string text = fmt::format(
      "the workers computed with \"{}\" before, and do with \"{}\" now: the result "
      "is as good, but its bits may differ from those of a run that never stopped",
      before.front(), now.front());
  LogWarning("{}", text);
  reporter_.Warning(text);
}

// Of metrics.jsonl, whatever the run's length was before.
DueLines Coordinator::LinesSoFar() const {
  const auto& tested = progress_.tested();
  DueLines due{
      .step = step_, .evaluated = IsEvaluated(), .tested = tested && tested->version == step_};
  const int64_t every = config_.run().log_every_steps();
  for (int64_t step = every; step <= step_; step += every) due.logs.push_back(step);
  for (int64_t step = 1; step <= step_; ++step) {
    const bool due_there = step < step_ ? evaluator_.IsRegularAfter(step - 1) : due.evaluated;
    if (due_there) due.evaluations.push_back(step);
  }
  return due;
}

// W(step_), on the set that chooses.
bool Coordinator::IsEvaluated() const {
  return progress_.evaluated() && progress_.evaluated()->version == step_;
}

// At the end of the run: W(step_) on the test set, which has chosen nothing.
bool Coordinator::TestIsDue() const {
  return evaluator_.TestsAtEnd() && (!progress_.tested() || progress_.tested()->version != step_);
}

// All are ready: the evaluation that had not ended, then the next step.
void Coordinator::GoOn() {
  reporter_.CutMetrics(LinesSoFar());
  reporter_.GoOn(step_);
  if (board_.writes()) board_.WriteAgain(reporter_.AllLines());
  const bool over = IsOver();
  const bool pending = !over && !IsEvaluated() && step_ > 0 && evaluator_.IsDueAfter(step_ - 1);
  LogInfo("the run goes on from step {}{}", step_,
          pending ? ", with the evaluation of its weights" : "");
  if (over || (step_ == plan_.total_steps && !pending)) Finish();
  if (pending) {
    OrderEvaluation(step_, evaluator_.chooses());
    progress_.BeginEvaluation();
  }
  if (evaluator_.running() && config_.evaluation().use_ema()) {
    for (size_t c = 0; c < aggregator_.chunks().size(); ++c) PublishAverage(step_, c);
  }
  if (step_ == plan_.total_steps) phase_ = Phase::kFinishing;
  if (phase_ == Phase::kFinishing) return;
  if (!pending || !decisions_.any()) Order(step_);
  BeginStep(step_);
}

// A server that is lost while it writes what a complete run leaves has told its workers so, and who
// starts them need not start them again: what is left to write needs nobody. False: something else
// is left to do.
bool Coordinator::FinishAsItIs() {
  if (!resumed_ || evaluate_only_) return false;
  const checkpoint::Plan& then = resumed_->plan();
  const StepPlan plan = PlanSteps(config_, then.train_samples());
  if (then.global_batch() != plan.global_batch || then.slices() != plan.slices) return false;
  evaluator_.Plan(plan, then.validation_samples(), then.test_samples());
  const bool evaluated = step_ == 0 || !evaluator_.IsDueAfter(step_ - 1) || IsEvaluated();
  const bool at_end = step_ == plan.total_steps && evaluated;
  if (!at_end && StopReasonAt(config_.evaluation(), *resumed_, plan.total_steps).empty()) {
    return false;
  }
  if (TestIsDue()) return false;
  LogInfo("all of the run has been done: what is left to write needs no workers");
  plan_ = plan;
  progress_.Begin(plan_, members_.roster().workers(), members_.size());
  board_.Begin(step_);
  GoOn();
  return true;
}

// The weights that the run would begin with, in place of a run.
void Coordinator::EvaluateOnly() {
  phase_ = Phase::kFinishing;
  const Roster& roster = members_.roster();
  if (roster.test_samples() == 0 && roster.validation_samples() == 0) {
    failure_.Set({ExitCode::kData, std::nullopt,
                  "there is nothing to evaluate on: expected test images, got none"});
    return;
  }
  OrderEvaluation(step_, roster.test_samples() > 0 ? wire::TEST : wire::VALIDATION);
  progress_.BeginEvaluation();
}

void Coordinator::OrderEvaluation(int64_t version, wire::EvaluationSet set) {
  const std::vector<uint32_t> ranks = members_.Staying();
  const std::vector<wire::Evaluate> orders =
      evaluator_.Begin(version, set, ranks, shares_.TimesOf(ranks));
  for (size_t i = 0; i < ranks.size(); ++i) {
    wire::ServerMessage message = members_.NewMessage();
    *message.mutable_evaluate() = orders[i];
    members_.Send(ranks[i], message);
  }
}

void Coordinator::PublishAverage(int64_t version, size_t chunk) {
  wire::ServerMessage message = WeightsMessage(version, chunk);
  message.mutable_weights_chunk()->set_average(true);
  members_.Broadcast(message, variables_.WireAverage(aggregator_.chunks()[chunk]));
}

void Coordinator::Finish() {
  phase_ = Phase::kFinishing;
  if (TestIsDue()) {
    lost_work_.BeginStep();  // its blocks are other ones
    OrderEvaluation(step_, wire::TEST);
    progress_.BeginEvaluation();
    repair_due_ = recovers_;
    return;
  }
  done_ = true;
  checkpoints_.TakeLast();
}

bool Coordinator::AtBoundary() const {
  if (phase_ == Phase::kFinishing) return true;
  return phase_ == Phase::kTraining && aggregator_.collects();
}

void Coordinator::KeepLast(const std::function<void()>& meanwhile) {
  checkpoints_.TakeLast();
  while (checkpoints_.busy()) {
    pollfd fd{pool_.fd(), POLLIN, 0};
    if (pool_.PrepareToSleep()) (void)::poll(&fd, 1, 500);
    pool_.Collect();
    meanwhile();
  }
}

}  // namespace muster
