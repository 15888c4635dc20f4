// `muster launch --dry-run`: what would run, without starting or writing anything.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/config.h"
#include "common/error.h"
#include "common/graph.h"
#include "common/process_memory.h"

namespace muster {

// How large the data are, or why that could not be found out.
struct DataCount {
  int64_t train = -1, test = -1;
  std::string problem;  // empty if they are known
  ExitCode code = ExitCode::kOk;
  std::string remark = {};  // what is odd about them, or ""
};

// The resolved config, then ranks with their slices, steps and memory. Lines without newlines.
// `config` is resolved; `worker_memory` is of the last rank, which has as many slices as any other;
// `shown_dir` is where the run's files would go.
std::vector<std::string> DryRunLines(const std::string& config_path, const config::Config& config,
                                     const Graph& graph, const DataCount& data,
                                     const std::vector<MemoryRow>& worker_memory,
                                     const std::string& shown_dir);

}  // namespace muster
