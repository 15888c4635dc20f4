#include "cli/model/initial_weights.h"

#include <fmt/core.h>

#include "cli/text/units.h"
#include "common/base/arena.h"
#include "common/base/error.h"
#include "common/model/load_weights.h"
#include "common/model/model_metadata.h"
#include "common/model/whole_file.h"
#include "proto/config.pb.h"

namespace muster {

std::vector<std::string> DescribeInitialWeights(const config::Run& run, const Graph& graph) {
  if (run.initial_weights().empty()) return {};
  const SafetensorsReader file(run.initial_weights());
  RequireWhole(file);
  Arena weights(graph.arena_floats());
  const WeightsMatch match =
      LoadWeights(file, graph, {.skip_mismatched = run.skip_mismatched()}, weights.floats());
  RequireFinite(file.path(), graph, match, weights.floats(), "; training never gets rid of them");
  const auto step = StepOf(file.header().metadata);
  std::vector<std::string> lines{fmt::format(
      "from {}{}: {} of {}", file.path(), step ? fmt::format(" (step {})", FormatCount(*step)) : "",
      match.variables.size(), Plural(static_cast<int64_t>(graph.variables().size()), "variable"))};
  for (const std::string& skipped : match.skipped) lines.push_back("skipped: " + skipped);
  return lines;
}

}  // namespace muster
