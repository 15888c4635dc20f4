#include "ps/update/initial_weights.h"

#include "common/base/log.h"
#include "common/model/load_weights.h"
#include "proto/config.pb.h"

namespace muster {

void LoadInitialWeights(const config::Run& run, const Graph& graph, Variables& variables) {
  if (run.initial_weights().empty()) return;
  const SafetensorsReader file(run.initial_weights());
  RequireWhole(file);
  const WeightsMatch match =
      LoadWeights(file, graph, {.skip_mismatched = run.skip_mismatched()}, variables.Weights(0));
  RequireFinite(file.path(), graph, match, variables.Weights(0));
  variables.StartFromWeights();
  LogInfo("starting from {}: {} of {} variables, hash {:016x}", file.path(), match.variables.size(),
          graph.variables().size(), variables.HashWeights(0));
  for (const std::string& line : match.skipped) LogInfo("skipped: {}", line);
}

}  // namespace muster
