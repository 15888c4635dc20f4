// Why a job cannot go on, as a value: what the server reports and what the launcher prints.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/base/error.h"

namespace muster {

struct JobFailure {
  ExitCode code = ExitCode::kFailure;
  std::optional<uint32_t> rank;  // the worker that it is about; empty: the server, or several
  std::string what;              // one line: who, what, when
};

}  // namespace muster
