// How large a data set is.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/error.h"

namespace muster {

// … or why that could not be found out.
struct DataCount {
  int64_t train = -1, test = -1;
  std::string problem;  // empty if they are known
  ExitCode code = ExitCode::kOk;
  std::string remark = {};  // what is odd about them, or ""
};

}  // namespace muster
