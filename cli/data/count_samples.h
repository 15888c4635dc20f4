// Counts the samples of a run.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/error.h"
#include "proto/config_fwd.h"

namespace muster {

// The numbers of samples, or the reason why they are unknown.
struct DataCount {
  int64_t train = -1, test = -1;
  int64_t validation = 0;         // 0: there is no such set
  std::string problem;            // empty if the numbers are known
  ExitCode code = ExitCode::kOk;  // for `problem`
  std::string remark = {};        // something unusual about the data, or ""
};

// Opens the data as a worker would. Errors are returned as `problem`.
DataCount CountSamples(const config::Config& config);
// The same for commands that do not train: counts only the test set or, without one, the validation
// set.
DataCount CountTestSamples(const config::Config& config);

}  // namespace muster
