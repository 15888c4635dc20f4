#include "ps/run/run_parts.h"

#include <utility>

#include "common/config/update_settings.h"

namespace muster {

RunParts::RunParts(const config::Config& config, const Graph& graph, Membership& members,
                   Recorder& recorder, FirstFailure& failure, bool restored,
                   Checkpoints::Describe describe)
    : config(config),
      graph(graph),
      roster(members.roster()),
      state{.loss_scale = LossScale(ScalesLoss(config))},
      engine(config, graph, restored,
             [this](int64_t version, size_t chunk) {
               feed.Publish(version, chunk);
               if (work.evaluator.AverageIsDue(version)) feed.PublishAverage(version, chunk);
             }),
      feed(members, engine),
      keeper(config, graph, state, roster, engine, recorder, std::move(describe)),
      work(config, graph, engine.chunks().size(), members.size()),
      decisions(config),
      nonfinite(config.run(), roster, state.loss_scale, recorder, failure),
      values(config.deadlines().once_s(), failure,
             [&members](uint32_t rank, const wire::Answer& answer) {
               wire::ServerMessage message;
               *message.mutable_answer() = answer;
               members.Send(rank, std::move(message));
             }) {}

bool RunParts::AtBoundary() const {
  return state.finishing() ||
         (state.phase == RunPosition::Phase::kTraining && engine.aggregator.collects());
}

}  // namespace muster
