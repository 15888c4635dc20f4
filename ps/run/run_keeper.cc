#include "ps/run/run_keeper.h"

#include <algorithm>
#include <utility>

#include "common/config/config.h"
#include "common/config/data_format.h"
#include "common/trace/trace.h"
#include "ps/record/event_texts.h"
#include "ps/record/run_id.h"

namespace muster {
namespace {

constexpr std::chrono::milliseconds kLiveInterval{200};

}  // namespace

RunKeeper::RunKeeper(const config::Config& config, const Graph& graph, const RunPosition& state,
                     const Roster& roster, Engine& engine, Recorder& the_recorder,
                     Checkpoints::Describe describe)
    : config_(config),
      state_(state),
      roster_(roster),
      run_id_(NewRunId()),
      recorder(the_recorder),
      progress(HasValues(config.data()) || HasProgram(config)),
      saver(config, graph, engine.variables, progress, files_, recorder),
      watch(roster, progress, recorder),
      checkpoints(config, run_id_, engine.variables, engine.pool, files_, recorder,
                  [this, describe = std::move(describe)] {
                    saver.SubmitBest();  // before the checkpoint that refers to it
                    return describe();
                  }) {
  if (!config.run().dir().empty()) files_.Submit([] { trace::NameThread("files"); });
}

void RunKeeper::Restore(const ResumePoint& resume) {
  run_id_ = resume.state().run_id();
  progress.Restore(resume.state().progress());
  checkpoints.Restore(resume);
  saver.Restore(resume);
}

void RunKeeper::MemberChanged(events::MemberChange::Kind kind, uint32_t rank,
                              const std::string& why, int64_t slices, int64_t blocks) {
  const Member& member = roster_.at(rank);
  events::Event event;
  events::MemberChange& change = *event.mutable_member_change();
  *change.mutable_at() = progress.PositionLine().at();
  change.set_kind(kind);
  change.set_rank(rank);
  change.set_host(member.host);
  change.set_pid(member.pid);
  change.set_why(why);
  change.set_slices(slices);
  change.set_blocks(blocks);
  // The workers that take part or, before the run begins, all that have joined.
  std::vector<uint32_t> now =
      state_.phase == RunPosition::Phase::kGathering ? roster_.Seated() : roster_.Active();
  if (kind == events::MemberChange::LEFT) std::erase(now, rank);
  change.set_workers(static_cast<int64_t>(now.size()));
  if (kind == events::MemberChange::LOST) last_loss_ = TextOf(change);
  recorder.Record(event);
}

// All intervals have the same length, so all means are equally noisy. Who sets a length of many
// epochs wants no line for each.
int64_t RunKeeper::LogInterval() const {
  constexpr int64_t kManyEpochs = 25;
  const int64_t wanted = config_.run().log_every_steps(), epoch = state_.plan.StepsPerEpoch();
  return wanted <= kManyEpochs * epoch ? std::min(wanted, epoch) : wanted;
}

void RunKeeper::StepEnded(std::chrono::steady_clock::time_point now) {
  const int64_t steps = progress.steps();
  events::Event event;
  if (steps % LogInterval() == 0 || steps == state_.plan.total_steps) {
    *event.mutable_log() = progress.LogLine();
    recorder.Record(event);
  }
  if (!LiveLineIsDue(now)) return;
  *event.mutable_progress() = progress.LiveLine();
  recorder.Record(event);
}

void RunKeeper::EvaluationEnded(const EvaluationResult& result, const std::string& decision,
                                Evaluator& evaluator) {
  events::Event event;
  *event.mutable_evaluation() = progress.EvaluationLine(result);
  event.mutable_evaluation()->set_decision(decision);
  recorder.Record(event, evaluator.TakeImages());
  // Rewritten after each evaluation, so that the file is current however the run ends.
  if (!evaluator.matrix_csv().empty()) {
    recorder.WriteFile("confusion_matrix.csv", evaluator.matrix_csv());
  }
}

bool RunKeeper::LiveLineIsDue(std::chrono::steady_clock::time_point now) {
  if (now < next_live_) return false;
  next_live_ = now + kLiveInterval;
  return true;
}

events::Summary RunKeeper::Finish(events::Summary summary) {
  for (const auto& [place, model] : saver.saved()) *summary.add_models() = model;
  if (const auto& newest = checkpoints.kept().newest()) {
    summary.set_checkpoint(checkpoints.kept().newest_in());
    summary.set_checkpoint_step(newest->step);
  }
  summary.set_lost(saver.lost());
  summary.set_trouble(
      JoinTroubles(JoinTroubles(checkpoints.trouble(), saver.trouble()), program_trouble));
  return recorder.Finish(std::move(summary), watch.Status(""));
}

}  // namespace muster
