#include "ps/initial_weights.h"

#include <algorithm>
#include <cmath>

#include "common/base/error.h"
#include "common/base/log.h"
#include "common/model/load_weights.h"
#include "proto/config.pb.h"

namespace muster {

void LoadInitialWeights(const config::Run& run, const Graph& graph, Variables& variables) {
  if (run.initial_weights().empty()) return;
  const SafetensorsReader file(run.initial_weights());
  const WeightsMatch match =
      LoadWeights(file, graph, {.skip_mismatched = run.skip_mismatched()}, variables.Weights(0));
  for (const int index : match.variables) {
    const Variable& variable = graph.variables()[static_cast<size_t>(index)];
    const auto values = variables.Weights(0).subspan(variable.offset, variable.count);
    if (std::ranges::all_of(values, [](float x) { return std::isfinite(x); })) continue;
    throw Error(ExitCode::kData,
                "{}: {} has values that are not finite (muster inspect shows them)", file.path(),
                variable.name);
  }
  variables.StartFromWeights();
  LogInfo("starting from {}: {} of {} variables, hash {:016x}", file.path(), match.variables.size(),
          graph.variables().size(), variables.HashWeights(0));
  for (const std::string& line : match.skipped) LogInfo("skipped: {}", line);
}

}  // namespace muster
