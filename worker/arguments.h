// What muster-worker was asked for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/config_fwd.h"

namespace muster {

struct WorkerArguments {
  std::string config, endpoint, token_file;
  std::vector<std::string> set;
  uint32_t rank = 0;
  int parent = 0;
  bool memory = false, join = false, evaluate = false, describe_gpu = false;
  std::string predict, weights;
  bool training_set = false;
};

// Its config, with --set; not resolved. Throws Error(kUsage).
config::Config LoadConfigOf(const WorkerArguments& arguments);

}  // namespace muster
