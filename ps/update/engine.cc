#include "ps/update/engine.h"

#include <utility>

#include "common/config/job_size.h"
#include "common/config/update_settings.h"
#include "ps/update/choose_kernels.h"

namespace muster {

Engine::Engine(const config::Config& config, const Graph& graph, bool restored,
               Aggregator::Publish publish)
    : variables(graph.layout(),
                {.state_arenas = static_cast<size_t>(TraitsOf(config.optimizer()).state_arrays),
                 .average = config.optimizer().has_ema_decay(),
                 // The average is saved with the weights whenever the run ends.
                 .keep_previous = config.optimizer().has_ema_decay(),
                 .wire_type = WireTypeOf(config.cluster()),
                 .seed = config.run().seed(),
                 .restored = restored}),
      pool(config.server().threads()),
      aggregator(variables, pool, CutChunks(graph.layout(), config.cluster()), config.optimizer(),
                 ChooseKernels(config.server().instruction_set()), MaySkipSteps(config),
                 std::move(publish)) {}

}  // namespace muster
