// `muster launch --dry-run`: what would run, without starting or writing anything.
#pragma once

#include <string>
#include <vector>

#include "cli/data/count_samples.h"
#include "common/config/config.h"
#include "common/graph/graph.h"
#include "common/plan/memory_rows.h"

namespace muster {

// Returns lines, without newlines: the header, the slices of each rank, the steps and the memory,
// but not the resolved config. `config` is resolved. `worker_memory` describes the last rank, which
// has as many slices as any other. `shown_dir` is where the files of the run would go. `cards`
// describes the GPUs that a run would get. `initial_weights`: see DescribeInitialWeights.
std::vector<std::string> DryRunLines(const std::string& config_path, const config::Config& config,
                                     const Graph& graph, const DataCount& data,
                                     const std::vector<MemoryRow>& worker_memory,
                                     const std::string& shown_dir,
                                     const std::vector<std::string>& cards = {},
                                     const std::vector<std::string>& initial_weights = {});

}  // namespace muster
