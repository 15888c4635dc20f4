// How many samples a run would find.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/error.h"
#include "proto/config_fwd.h"

namespace muster {

// The number of samples, or the reason that it is unknown.
struct DataCount {
  int64_t train = -1, test = -1;
  int64_t validation = 0;  // 0: there is no such set
  std::string problem;     // empty if they are known
  ExitCode code = ExitCode::kOk;
  std::string remark = {};  // what is odd about them, or ""
};

// Opens the data as a worker would. What is wrong with them becomes `problem`.
DataCount CountSamples(const config::Config& config);
// The same for what trains nothing: the test set, or else the validation set. DataCount::train says
// nothing of them.
DataCount CountTestSamples(const config::Config& config);

}  // namespace muster
