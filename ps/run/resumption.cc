#include "ps/run/resumption.h"

#include <fmt/core.h>

#include <algorithm>

#include "common/base/log.h"
#include "common/base/version.h"
#include "common/checkpoint/early_stop.h"
#include "common/config/config.h"
#include "common/config/job_size.h"
#include "common/plan/count_limits.h"
#include "ps/record/checkpoint_arenas.h"
#include "ps/update/initial_weights.h"

namespace muster {
namespace {

std::string OtherDataRemedy(const config::Config& config) {
  const bool photos = config.data().format() == config::Data::IMAGE_FOLDER;
  return fmt::format(
      "{}. Restore the original data, or start a new run from this run's weights: "
      "--initial-weights {}/model.safetensors",
      photos ? ": files were added, removed, renamed or skipped" : "", config.run().dir());
}

}  // namespace

Resumption::Resumption(RunParts& parts, FirstFailure& failure, const ResumePoint* resume)
    : parts_(parts), failure_(failure), replay_(resume) {
  if (resume != nullptr) {
    Restore(*resume);
  } else {
    LoadInitialWeights(parts.config.run(), parts.graph, parts.engine.variables);
  }
}

// Restores everything in the checkpoint. The recorder undoes later steps when the run begins;
// the data are compared when the workers have joined (Misfit).
void Resumption::Restore(const ResumePoint& resume) {
  resumed_ = resume.state();
  parts_.state.step = resumed_->step();
  RestoreVariables(*resume.checkpoint.reader, parts_.engine.variables);
  parts_.keeper.Restore(resume);
  parts_.decisions.Restore(resumed_->decisions());
  parts_.values.Restore(*resumed_);
  if (const std::string length = parts_.values.Length(); !length.empty()) {
    (void)parts_.keeper.progress.ExpectSteps(length);
  }
  parts_.convolutions.Restore(resumed_->arithmetic());
  parts_.nonfinite.Restore(resumed_->skipped_in_a_row());
  if (resumed_->loss_scale() > 0) {
    parts_.state.loss_scale.Restore(resumed_->loss_scale(), resumed_->loss_scale_good_steps());
  }
}

checkpoint::State Resumption::Describe() const {
  const Roster& roster = parts_.roster;
  const RunPosition& run = parts_.state;
  const Evaluator& evaluator = parts_.work.evaluator;
  checkpoint::State state;
  state.set_muster_version(kVersion);
  state.set_step(run.step);
  state.set_evaluated(run.step > 0 && evaluator.IsDueAfter(run.step - 1) && !evaluator.running());
  checkpoint::Plan& plan = *state.mutable_plan();
  plan.set_train_samples(run.plan.train_samples);
  plan.set_test_samples(roster.data().test_samples);
  plan.set_validation_samples(roster.data().validation_samples);
  plan.set_global_batch(run.plan.global_batch);
  plan.set_slices(run.plan.slices);
  plan.set_total_steps(run.plan.total_steps);
  plan.set_drop_last(run.plan.drop_last);
  plan.set_layout_hash(parts_.graph.layout().hash());
  plan.set_data_fingerprint(roster.data().fingerprint);
  for (const std::string& arithmetic : roster.Arithmetic()) {
    state.mutable_arithmetic()->add_worker(arithmetic);
  }
  parts_.convolutions.Keep(*state.mutable_arithmetic());
  state.set_updates(parts_.engine.variables.updates());
  state.set_skipped_in_a_row(parts_.nonfinite.skipped_in_a_row());
  if (const LossScale& scale = run.loss_scale; scale.is_on()) {
    state.set_loss_scale(scale.value());
    state.set_loss_scale_good_steps(scale.good_steps());
  }
  *state.mutable_progress() = parts_.keeper.progress.Keep();
  *state.mutable_decisions() = parts_.decisions.Keep();
  parts_.values.Keep(state);
  return state;
}

std::string Resumption::CheckPlan() {
  const SeenData& data = parts_.roster.data();
  const int64_t most = std::max(data.validation_samples, data.test_samples);
  std::string why = CountTrouble(parts_.state.plan, most, parts_.config.evaluation().batch());
  if (!why.empty() || !resumed_) return why;
  why = Misfit();
  if (!why.empty()) {
    return fmt::format("the run cannot be {}: {}", replay_.is_on() ? "replayed" : "resumed", why);
  }
  const std::string change = ArithmeticChange(resumed_->arithmetic(), Describe().arithmetic());
  if (!change.empty()) {
    parts_.keeper.recorder.Warn(
        change + ": the result is equally good, but its bits may differ from an uninterrupted run");
  }
  return "";
}

// Compares the data, which only the workers know, and checks that the run is not too short now.
std::string Resumption::Misfit() const {
  const checkpoint::Plan& then = resumed_->plan();
  const StepPlan& plan = parts_.state.plan;
  const SeenData& data = parts_.roster.data();
  std::string why;
  const auto compare = [&](const char* what, int64_t was, int64_t is) {
    if (was != is && why.empty()) why = fmt::format("{} was {} and is now {}", what, was, is);
  };
  compare("the number of training samples", then.train_samples(), plan.train_samples);
  compare("the number of validation samples", then.validation_samples(), data.validation_samples);
  compare("the number of test samples", then.test_samples(), data.test_samples);
  if (why.empty() && then.data_fingerprint() != data.fingerprint) {
    why = "the training data have changed";
  }
  if (!why.empty() && !replay_.is_on()) why += OtherDataRemedy(parts_.config);
  compare("the global batch", then.global_batch(), plan.global_batch);
  compare("the number of slices", then.slices(), plan.slices);
  compare("run.drop_last", then.drop_last(), plan.drop_last);  // 0 or 1
  if (why.empty() && plan.total_steps < parts_.state.step) {
    why = fmt::format("it has done {} steps but now ends after {}", parts_.state.step,
                      plan.total_steps);
  }
  return why;
}

bool Resumption::IsEvaluated() const {
  const auto& evaluated = parts_.keeper.progress.evaluations().last();
  return evaluated && evaluated->version == parts_.state.step;
}

bool Resumption::TestIsDue() const {
  if (replay_.is_on()) return false;  // the original run's test result is not compared
  const auto& tested = parts_.keeper.progress.evaluations().tested();
  return parts_.work.evaluator.TestsAtEnd() && (!tested || tested->version != parts_.state.step);
}

// A run that stopped early may continue if it was made longer or got more patience.
bool Resumption::StopsEarly() {
  if (!resumed_) return false;
  const config::Evaluation& settings = parts_.config.evaluation();
  Progress& progress = parts_.keeper.progress;
  progress.StopEarly(StopReasonAt(settings, *resumed_, parts_.state.plan.total_steps));
  if (progress.stop_reason().empty()) return false;
  LogInfo("the run is over: {}; to continue, use {}", progress.stop_reason(),
          HowToGoOn(settings, resumed_->decisions()));
  return true;
}

// A server that is lost while it writes the final files has already stopped its workers, which will
// not be restarted.
bool Resumption::IsDoneAlready() {
  if (!resumed_) return false;
  const checkpoint::Plan& then = resumed_->plan();
  const int64_t step = parts_.state.step;
  const StepPlan plan = PlanSteps(parts_.config, then.train_samples());
  const bool same = then.global_batch() == plan.global_batch && then.slices() == plan.slices &&
                    then.drop_last() == plan.drop_last;
  if (!same) return false;
  parts_.work.evaluator.Plan(plan, then.validation_samples(), then.test_samples());
  const bool evaluated = step == 0 || !parts_.work.evaluator.IsDueAfter(step - 1) || IsEvaluated();
  const bool at_end = step == plan.total_steps && evaluated;
  const bool stops = !StopReasonAt(parts_.config.evaluation(), *resumed_, plan.total_steps).empty();
  if ((!at_end && !stops) || TestIsDue()) return false;
  LogInfo("the run is complete; writing the final files without workers");
  parts_.state.plan = plan;
  return true;
}

bool Resumption::IsAsKept(bool is_end) {
  if (replay_.over() || (!is_end && !replay_.IsDue(parts_.state.step))) return true;
  const std::string difference = replay_.Compare(Describe(), parts_.engine.variables, is_end);
  if (!difference.empty()) failure_.Set({ExitCode::kFailure, std::nullopt, difference});
  return difference.empty();
}

}  // namespace muster
