#include "ps/run/started_event.h"

namespace muster {

events::Started StartedEvent(const StepPlan& plan, const Roster& roster, const Graph& graph,
                             const Engine& engine) {
  events::Started started;
  for (uint32_t rank = 0; rank < roster.size(); ++rank) {
    const Member& member = roster.at(rank);
    if (!member.present()) continue;
    events::Started::Worker& worker = *started.add_workers();
    worker.set_rank(rank);
    worker.set_host(member.host);
    worker.set_pid(member.pid);
    worker.set_threads(member.threads);
    worker.set_arithmetic(member.arithmetic);
  }
  started.set_train_samples(plan.train_samples);
  started.set_test_samples(roster.data().test_samples);
  if (const int64_t held_back = roster.data().validation_samples; held_back > 0) {
    started.set_validation_samples(held_back);
  }
  if (!plan.IsOpen()) started.set_total_steps(plan.total_steps);
  started.set_steps_per_epoch(plan.StepsPerEpoch());
  if (plan.train_samples > 0 && !plan.IsOpen()) {
    started.set_epochs(plan.EpochsOf(plan.At(plan.total_steps).samples_before));
  }
  started.set_global_batch(plan.global_batch);
  started.set_slices(plan.slices);
  started.set_parameters(graph.layout().parameter_count());
  started.set_chunks(static_cast<int64_t>(engine.chunks().size()));
  started.set_instruction_set(engine.aggregator.instruction_set());
  return started;
}

}  // namespace muster
