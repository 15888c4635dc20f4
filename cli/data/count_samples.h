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
  ExitCode code = ExitCode::kOk;  // exit code for `problem`
  std::string remark = {};        // something unusual about the data, or ""
};

// Opens the data as a worker would. Errors are returned as `problem`.
DataCount CountSamples(const config::Config& config);
// Like CountSamples, but for commands that do not train: counts only the test set or, if there is
// none, the validation set.
DataCount CountTestSamples(const config::Config& config);

}  // namespace muster
