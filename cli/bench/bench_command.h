// `muster bench`: how good this machine is at a round of push, average, update and pull.
#pragma once

#include <string>
#include <vector>

#include "common/config/config.h"

namespace muster {

struct BenchArguments {
  std::string update_program, sync_program;  // paths of update_bench and sync_bench
  // The model: a size in bytes, or a config; neither: a size that stands for many.
  double size = 0;
  std::string config_path;
  std::vector<Setting> settings;  // of the config
  int workers = 0;                // 0: the config's, or 2
  bool json = false;
};

// Prints to standard output, progress to standard error. Returns the exit code; throws Error.
int RunBench(const BenchArguments& arguments);

}  // namespace muster
