// `muster launch --dry-run`: what would run, without starting or writing anything.
#pragma once

#include <string>
#include <vector>

#include "cli/cluster/host_list.h"
#include "cli/job/header.h"
#include "common/config/config.h"
#include "common/graph/graph.h"
#include "common/plan/memory_rows.h"

namespace muster {

// Returns lines, without newlines: the header, the slices of each rank, the steps and the memory,
// but not the resolved config. `config` is resolved. `worker_memory` describes the last rank, which
// has as many slices as any other; of a program's job it and `graph` are empty. `shown_dir` is
// where the files of the run would go. `hosts`: those of the workers, or empty if all run on this
// one; otherwise `worker_memory` is not used.
std::vector<std::string> DryRunLines(const std::string& config_path, const config::Config& config,
                                     const Graph& graph,
                                     const std::vector<MemoryRow>& worker_memory,
                                     const std::string& shown_dir, HeaderOptions options,
                                     const std::vector<Host>& hosts = {});

}  // namespace muster
